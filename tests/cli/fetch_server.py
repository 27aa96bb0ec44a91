"""A web server on loopback for test-fetch.sh. It serves the current folder and understands byte ranges.

    fetch_server.py LOG PORTFILE    writes its port to PORTFILE once it listens, and a line for each request to LOG

The first component of a path says how the server behaves:
    /good/FILE     as it should
    /cut/FILE      closes the connection after 1000 bytes of each answer
    /whole/FILE    ignores ranges
    /wrong/FILE    with one byte changed
    /long/FILE     with a byte too many
    /hang/FILE     sends 1000 bytes and then nothing, until the client is gone
    /moved/FILE    redirects to /good/FILE
    /inward/FILE   redirects to file:///etc/passwd
    /error/CODE/   answers with that code
"""
import http.server
import os
import re
import socket
import sys

log = open(sys.argv[1], "a", buffering=1)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def redirect(self, to):
        self.send_response(302)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        how, _, name = self.path.lstrip("/").partition("/")
        log.write(f"{self.path} {self.headers.get('Range', '-')}\n")
        if how == "error":
            self.send_error(int(name.split("/")[0]))
            return
        if how == "moved":
            self.redirect("/good/" + name)
            return
        if how == "inward":
            self.redirect("file:///etc/passwd")
            return
        if not os.path.isfile(name):
            self.send_error(404)
            return
        data = open(name, "rb").read()
        if how == "wrong":
            data = data[:50] + bytes([data[50] ^ 1]) + data[51:]
        if how == "long":
            data += b"x"
        self.answer(how, data)

    def answer(self, how, data):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and how != "whole" else 0
        if first and first >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.end_headers()
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if how in ("cut", "hang"):
            self.wfile.write(data[first : first + 1000])
            self.wfile.flush()
            if how == "hang":
                self.connection.recv(1)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(data[first:])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(sys.argv[2] + ".new", "w") as port:
    port.write(str(server.server_address[1]))
os.rename(sys.argv[2] + ".new", sys.argv[2])
server.serve_forever()
