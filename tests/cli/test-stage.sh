#!/bin/sh
# lockstep data stage: a verified copy on the disk of a node, once for all processes of the node.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"
. "$source_root/tests/cli/losses.sh"
. "$source_root/tests/cli/workers.sh"

classes trees/train 4 ash birch "élan vert"
classes trees/val 2 ash birch "élan vert"
mkdir trees/train/empty
options="--model mlp --input 3x20x20 --augment none --batch 6 --epochs 1 --threads 1 --no-tune --quiet"

it "copies a data set that trains as the source does"
lockstep data stage trees local/trees
expect_code 0
expect_out '^local/trees: staged; use it with --data local/trees'
diff -r -x '.lockstep*' trees local/trees >differences || miss "the copy differs"
expect "$(ls -A local)" = trees
train source --data trees
train copy --data local/trees
expect_same source.losses copy.losses

it "copies nothing that is there and intact"
inode=$(stat -c %i local/trees/train/ash/1.ppm)
lockstep data stage trees local/trees/
expect_code 0
expect_out 'is there already'
expect "$(stat -c %i local/trees/train/ash/1.ppm)" = "$inode"

it "copies again what is damaged, missing or out of date"
printf x | dd of=local/trees/train/ash/1.ppm bs=1 seek=100 conv=notrunc 2>dd.log
touch -r trees/train/ash/1.ppm local/trees/train/ash/1.ppm
lockstep data stage trees local/trees
expect_code 0
expect_out ': staged'
expect_err 'local/trees/train/ash/1.ppm: its checksum is wrong'
cmp trees/train/ash/1.ppm local/trees/train/ash/1.ppm || miss "still damaged"
rm local/trees/val/ash/1.ppm
lockstep data stage trees local/trees
expect_out ': staged'
expect_file local/trees/val/ash/1.ppm
photo 3 9 20 >trees/train/ash/9.ppm
lockstep data stage trees local/trees
expect_out ': staged'
expect_file local/trees/train/ash/9.ppm
echo damaged >local/trees/.lockstep-staged
lockstep data stage trees local/trees
expect_code 0
expect_out ': staged'

it "keeps the index of shards valid"
lockstep data convert trees trees-tar
lockstep data trees-tar
expect_file trees-tar/.lockstep-index-train
lockstep data stage trees-tar local/tar
expect_code 0
before=$(stat -c '%Y %i' local/tar/.lockstep-index-train)
train tar --data local/tar
expect "$(stat -c '%Y %i' local/tar/.lockstep-index-train)" = "$before"

it "copies once when several processes start together"
children=
for rank in 1 2 3 4; do
    "$program" data stage trees local/together >"out-$rank" 2>"err-$rank" &
    children="$children $!"
done
for child in $children; do
    wait "$child" || miss "exit code $?"
done
expect "$(cat out-? | grep -c ': staged')" = 1
expect "$(cat out-? | grep -c 'is there already')" = 3
expect "$(ls -A local)" = "tar
together
trees"

it "goes on after a kill, and leaves nothing when it is interrupted"
mkdir big
head -c 100000000 /dev/zero >big/all.packed
for signal in KILL INT; do
    hold data stage big local/big --loader-threads 1
    within 60 test -e local/big.lockstep-lock -o -e local/big || miss "it does not begin"
    kill -"$signal" "$child" 2>kill.log
    let_go
    # It may have ended before the signal came.
    if [ "$code" = 0 ]; then
        cmp big/all.packed local/big/all.packed || miss "the copy differs"
        rm -r local/big
    fi
    expect_no_file local/big
    [ "$signal" = KILL ] || expect "$(ls -d local/big* 2>ls.log)" = ""
done
mkdir local/big.lockstep-new && echo half >local/big.lockstep-new/all.packed
: >local/big.lockstep-lock
: >big/all.packed
lockstep data stage big local/big
expect_code 0
expect "$(ls -d local/big*)" = local/big
expect "$(wc -c <local/big/all.packed)" -eq 0

it "copies a single file, and a list with its images"
lockstep data stage trees-tar/train-000000.tar local/file
expect_code 0
expect_out 'use it with --data local/file/train-000000.tar'
(cd trees && find train -name '*.ppm' | sort | awk -F/ '{ print $0 "\t" $2 }') >trees/list.txt
lockstep data stage trees/list.txt local/list
expect_code 0
expect_no_file local/list/val
lockstep data local/list/list.txt
expect_code 0
printf '../trees/train/ash/1.ppm\tash\n' >trees-tar/list.txt
lockstep data stage trees-tar/list.txt local/outside
expect_code 3
expect_error 'lies outside of the folder of the list'

it "copies a data set that was fetched, by its name"
mkdir -p .local/share/lockstep
cp -r trees .local/share/lockstep/tiny-imagenet-200
XDG_DATA_HOME='' lockstep data stage tiny-imagenet local/tiny
expect_code 0
expect_file local/tiny/train/ash/1.ppm
lockstep data stage cifar10 local/cifar
expect_code 3
expect_error 'cifar10: the data set was not fetched yet; type: lockstep data fetch cifar10'
lockstep data stage synthetic:1x2x3:4 local/synthetic
expect_code 2
expect_error 'synthetic:1x2x3:4 has no files'

it "refuses a folder with other files, its source, and what does not exist"
mkdir mine && echo text >mine/notes
lockstep data stage trees mine
expect_code 2
expect_error 'mine: it holds files that .lockstep data stage. has not written; give a folder of its own, such as .*mine/trees'
lockstep data stage trees trees
expect_code 2
lockstep data stage trees trees/copy
expect_code 2
lockstep data stage nowhere local/nowhere
expect_code 3
expect_error 'nowhere: no such file or folder'
lockstep data stage trees
expect_code 2
lockstep data stage trees-tar local/trees
expect_code 2
expect_error 'local/trees: it holds a copy of .*/trees; give another folder for trees-tar'
expect_file local/trees/train/ash/1.ppm
expect "$(cat mine/notes)" = text
expect "$(ls -d local/nowhere* 2>ls.log)" = ""

it "names a link that leads nowhere"
cp -r trees dangling && ln -s nothing dangling/train/ash/link.ppm
lockstep data stage dangling local/dangling
expect_code 3
expect_error 'dangling/train/ash/link.ppm: No such file'
expect "$(ls -d local/dangling* 2>ls.log)" = ""

it "says how much a full disk lacks, and leaves nothing there"
mkdir disk
if ! mount -t tmpfs -o size=64k tmpfs disk 2>mount.log; then
    skip "this user may not mount a small disk"
else
    # shellcheck disable=SC2317 # called at exit
    release_scratch() {
        umount "$scratch/disk" 2>/dev/null
    }
    lockstep data convert synthetic:3x64x64:2:100 large.packed
    lockstep data stage large.packed disk/trees
    expect_code 1
    expect_error 'disk/trees: the data set needs 1.4 MiB, but only 64.0 KiB are free there'
    expect "$(ls -A disk)" = ""
    lockstep data convert large.packed disk/trees --to packed
    expect_code 1
    expect_error 'disk/trees.lockstep-new/train.packed: writing failed after [0-9]+ bytes: No space left on device'
    expect "$(ls -A disk)" = ""
    lockstep data stage trees disk
    expect_code 1
    expect_error 'disk: it is a whole file system; give a folder in it, such as .*disk/data'
fi

finish
