#!/bin/sh
# lockstep data fetch, against a web server on loopback.
. tests/cli/harness.sh
: "${PYTHON:=python3}"
tools="$source_root/tests/cli"

it "needs a name that it knows"
lockstep data fetch
expect_code 2
expect_error 'mnist, cifar10, cifar100 and tiny-imagenet'
lockstep data fetch cifar-11
expect_code 2
expect_error 'cifar-11.*did you mean cifar10'
lockstep data fetch cifar10 --from ftp://host
expect_code 2
expect_error '^lockstep: error: --from: .*ftp://host'
lockstep data fetch cifar10 --json
expect_code 2
expect_error 'data fetch takes no --json'
lockstep data mnist --into here
expect_code 2
expect_error 'data check takes no --into; it is an option of data fetch'

it "tells how a data set is fetched that is not there"
for set in cifar-10 cifar10 CIFAR_10 cifar-10-batches-bin; do
    lockstep train --data "$set"
    expect_code 3
    expect_error "$set.*lockstep data fetch cifar10"
done
lockstep train cifar10
expect_code 2
expect_error "'cifar10' is data; type: lockstep train --data cifar10"
lockstep data tiny-imagenet
expect_code 3
expect_error 'lockstep data fetch tiny-imagenet'

it "names the package when the program was built without libcurl"
mkdir alone
cp "$program" alone
alone/lockstep data fetch cifar10 2>err
expect $? = 1
expect_err 'built without libcurl.*apt-get install libcurl4-openssl-dev libssl-dev'
expect "$(ls -A .local/share/lockstep 2>/dev/null)" = ""

if [ ! -e "$(dirname "$program")/lockstep-fetch.so" ] || ! "$PYTHON" -c 'import http.server, zlib' 2>err; then
    it "fetches"
    skip "this program was built without libcurl, or there is no Python"
    finish
    exit
fi

mkdir www
cd www || exit 1
"$PYTHON" "$tools/fetch_archives.py" "$source_root/tests/cli/images/bars.jpg" || exit 1
"$PYTHON" "$tools/fetch_server.py" ../log ../port &
server=$!
cd .. || exit 1
release_scratch() {
    kill "$server" 2>/dev/null
}
until [ -e port ]; do
    kill -0 "$server" || exit 1
    sleep 0.1
done
web="http://127.0.0.1:$(cat port)"
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
home=.local/share/lockstep
# fetch HOW SET...: from the server, with the checksums of its files
fetch() {
    how=$1
    shift
    : >log
    lockstep data fetch "$@" --from "$web/$how" --checksums "${sums:-www/SHA256SUMS}"
}
# expect_nothing DIR: no data set, nothing half unpacked, no file of a download
expect_nothing() {
    expect "$(ls -A "$1" 2>/dev/null)" = ""
}

it "fetches all data sets, which then have names"
fetch good mnist cifar10 cifar100 tiny-imagenet
expect_code 0
expect_out "cifar10: .*$home/cifar-10-batches-bin; use it with --data cifar10"
expect "$(find $home -maxdepth 1 -mindepth 1 -printf '%f\n' | sort | tr '\n' ' ')" = \
    "cifar-10-batches-bin cifar-100-binary mnist tiny-imagenet-200 "
for set in cifar-10 cifar10 CIFAR-100 tiny-imagenet tiny_imagenet-200 "$home/mnist"; do
    "$program" data "$set" >out 2>err || miss "$set cannot be read"
done
lockstep data tiny-imagenet
expect_out 'tiny-imagenet, 2 classes'
expect_out 'goldfish +3 +1'

it "trains by name, in any folder, and goes on with that"
mkdir elsewhere
cd elsewhere || exit 1
lockstep train --model mlp --data cifar-10 --batch 6 --epochs 2 --run ../named --stop-after 1
expect_code 75
expect "$(grep -c '^data: cifar-10 ' ../named/config.yaml)" = 1
cd ..
lockstep train --run named --resume
expect_code 0
lockstep eval named --eval-data cifar10
expect_code 0

it "prefers a folder of that name here"
mkdir -p here/cifar-10
cp $home/cifar-10-batches-bin/* here/cifar-10
rm here/cifar-10/batches.meta.txt
cd here || exit 1
lockstep data cifar-10
expect_code 0
expect_out '^class  train  test$'
cd ..

it "does nothing the second time"
fetch good cifar10
expect_code 0
expect_out 'cifar10: is there already: .*cifar-10-batches-bin'
expect "$(cat log)" = ""
fetch good cifar-10-batches-bin --into $home --quiet
expect_code 0
expect "$(cat out err)" = ""

it "puts it into another folder, with spaces and UTF-8 in its name"
fetch moved cifar-10 --into "a b/été"
expect_code 0
expect_out 'use it with --data a b/été/cifar-10-batches-bin'
expect_same "a b/été/cifar-10-batches-bin/test_batch.bin" $home/cifar-10-batches-bin/test_batch.bin
expect "$(ls -A "a b/été")" = cifar-10-batches-bin

it "goes on after a broken connection, as often as bytes arrive"
fetch cut cifar10 --into cut
expect_code 0
expect "$(grep -c 'bytes=[1-9]' log)" -ge 10
expect_same cut/cifar-10-batches-bin/test_batch.bin $home/cifar-10-batches-bin/test_batch.bin

# wait_for FILE BYTES: until the file has as many
wait_for() {
    until [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -ge "$2" ]; do
        kill -0 "$child" 2>/dev/null || break
        sleep 0.05
    done
}
# begin: fetches until a part has arrived
begin() {
    : >log
    "$program" data fetch cifar10 --from "$web/hang" --checksums www/SHA256SUMS --into "$1" >out 2>err &
    child=$!
    wait_for "$1/cifar-10-binary.tar.gz.part" 1000
}

it "keeps what has arrived when it is killed, and goes on from there"
begin killed
kill -9 $child
wait $child 2>/dev/null
expect "$(ls -A killed)" = cifar-10-binary.tar.gz.part
mkdir -p killed/.cifar-10-batches-bin.unpacking/cifar-10-batches-bin # as if it had been killed while unpacking
echo half >killed/.cifar-10-batches-bin.unpacking/cifar-10-batches-bin/test_batch.bin
fetch good cifar10 --into killed
expect_code 0
expect "$(cat log)" = '/good/cifar-10-binary.tar.gz bytes=1000-'
expect_same killed/cifar-10-batches-bin/test_batch.bin $home/cifar-10-batches-bin/test_batch.bin
expect "$(ls -A killed)" = cifar-10-batches-bin

it "can be interrupted, with the code for a command that goes on"
begin stopped
kill -INT $child
wait $child
expect $? = 75
expect_err 'interrupted after 1000 bytes.*the same command goes on'
fetch whole cifar10 --into stopped
expect_code 0
expect "$(wc -l <log)" = 2 # the server cannot go on: once more from the start

it "lets one process at a time fetch a file"
begin both
fetch good cifar10 --into both
expect_code 1
expect_error 'both/cifar-10-binary.tar.gz.part: another process is fetching it'
kill -9 $child
wait $child 2>/dev/null
fetch good cifar10 --into both
expect_code 0

it "verifies a complete part without another transfer, and replaces one that is wrong or too long"
mkdir parts
cp www/cifar-10-binary.tar.gz parts/cifar-10-binary.tar.gz.part
fetch good cifar10 --into parts
expect_code 0
expect "$(cat log)" = ""
rm -r parts
mkdir parts
head -c 3000 /dev/zero >parts/cifar-10-binary.tar.gz.part
fetch good cifar10 --into parts
expect_code 3
expect_error 'wrong sha256 checksum: expected [0-9a-f]*, found [0-9a-f]*; the download was removed'
expect_nothing parts

it "refuses a wrong checksum"
fetch wrong cifar10 --into wrong
expect_code 3
expect_error "$web/wrong/cifar-10-binary.tar.gz: wrong sha256 checksum"
expect_nothing wrong
lockstep data fetch mnist --from "$web/good" --into wrong # the published checksums, of files of another size
expect_code 3
expect_error 'train-images-idx3-ubyte.gz: [0-9]* bytes, expected 9912422'
expect_nothing wrong
printf '%s  cifar-10-binary.tar.gz\n' 0123 >odd
sums=odd fetch good cifar10 --into wrong
expect_code 3
expect_error 'odd: line 1: expected a checksum'
: >odd
sums=odd fetch good cifar10 --into wrong
expect_code 3
expect_error 'odd: no checksum of cifar-10-binary.tar.gz'
md5sum www/cifar-10-binary.tar.gz >odd
sums=odd fetch good cifar10 --into md5
expect_code 0

it "reports errors of the server and of the network"
for answer in 404 500 403; do
    fetch "error/$answer" cifar10 --into none
    expect_code 1
    expect_error "$web/error/$answer/cifar-10-binary.tar.gz: .*$answer.*--from"
    expect_nothing none
done
lockstep data fetch cifar10 --from http://127.0.0.1:9 --into none
expect_code 1
expect_error 'http://127.0.0.1:9/cifar-10-binary.tar.gz: .*onnect'
lockstep data fetch cifar10 --from http://no-such-host.invalid --into none
expect_code 1
expect_error 'no-such-host.invalid.*resolve'
fetch inward cifar10 --into none # a redirection to a file of this machine
expect_code 1
expect_error 'inward/cifar-10-binary.tar.gz: .*rotocol'
expect_nothing none

it "fetches from a folder of this machine"
lockstep data fetch cifar10 --from "file://$PWD/www" --checksums www/SHA256SUMS --into local
expect_code 0
expect_same local/cifar-10-batches-bin/test_batch.bin $home/cifar-10-batches-bin/test_batch.bin

it "unpacks nothing outside of its folder, no links, and nothing damaged"
for bad in www/bad/*; do
    kind=$(basename "$bad")
    set=cifar10
    case $kind in zip-*) set=tiny-imagenet ;; esac
    sums="$bad/SHA256SUMS" fetch "good/bad/$kind" $set --into "bad-$kind"
    expect_code 3
    expect_nothing "bad-$kind"
done
expect "$(ls -d escaped /tmp/lockstep-escaped 2>/dev/null)" = ""
sums=www/bad/link/SHA256SUMS fetch good/bad/link cifar10 --into bad-link
expect_error "bad-link/cifar-10-binary.tar.gz.part: the member 'cifar-10-batches-bin/a' is neither a file nor a folder"

it "says so where it may not write"
mkdir shut
chmod a-w shut
if [ -w shut ]; then # root may write everywhere except where there can be no file
    fetch good cifar10 --into /proc/lockstep
    expect_code 1
    expect_error '/proc/lockstep.*cannot be created'
else
    fetch good cifar10 --into shut
    expect_code 1
    expect_error 'shut.*cannot be created: Permission denied'
fi
: >file
fetch good cifar10 --into file
expect_code 1
expect_error 'file'

it "says so where the disk is full, and keeps what has arrived"
mkdir full
if mount -t tmpfs -o size=40k none full 2>err; then
    release_scratch() {
        kill "$server" 2>/dev/null
        umount "$scratch/full"
    }
    fetch good cifar10 --into full
    expect_code 1
    expect_error 'full/cifar-10-binary.tar.gz.part: cannot be written beyond byte [0-9]*: No space left'
    mount -o remount,size=150k full
    fetch good cifar10 --into full
    expect_code 1
    expect_error 'full/.cifar-10-batches-bin.unpacking/.*: No space left'
    expect "$(ls -A full)" = cifar-10-binary.tar.gz.part
    mount -o remount,size=2m full
    fetch good cifar10 --into full
    expect_code 0
    expect "$(ls -A full)" = cifar-10-batches-bin
else
    skip "no file system can be mounted here"
fi

finish
