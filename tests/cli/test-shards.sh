#!/bin/sh
# Tar shards and TFRecords: the same images in the same order give the losses of the folder, on any number of workers, with and
# without an index, and after a resume.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"
. "$source_root/tests/cli/losses.sh"
. "$source_root/tests/cli/workers.sh"

python=${PYTHON:-python3}
classes trees/train 5 ash birch elm
classes trees/val 2 ash birch elm
options="--model mlp --input 3x20x20 --augment none --batch 6 --epochs 3 --threads 1 --no-tune --quiet"

shards() {
    "$python" "$source_root/tests/cli/shards.py" "$@" || miss "the shards cannot be made"
}

it "learns from tar shards what it learns from folders"
train folders --data trees
expect_file folders.losses
shards tar tars
train tars --data tars
expect_same folders.losses tars.losses
shards tar labelled cls
train labelled --data labelled
expect_same folders.losses labelled.losses

it "learns the same from TFRecords, with names of classes and with numbers from 1"
shards tfrecord records
train records --data records
expect_same folders.losses records.losses
shards tfrecord ones 1
train ones --data ones
expect_same folders.losses ones.losses

it "learns the same from Caffe's LMDB, with files and with planes"
if ! "$python" -c 'import lmdb' 2>lmdb.log; then
    skip "needs the lmdb package of Python"
else
    shards lmdb caffe
    train caffe --data caffe
    expect_same folders.losses caffe.losses
    shards lmdb planes planes
    train planes --data planes/train --eval-data planes/val
    expect_same folders.losses planes.losses
    head -c 6000 caffe/train/data.mdb >planes/val/data.mdb
    lockstep data planes/val
    expect_code 3
    expect_err 'planes/val/data.mdb: at byte [0-9]+: '
fi

it "uses the index that it has written"
expect_file tars/.lockstep-index-train
expect_file records/.lockstep-index-test
train again --data tars
expect_same folders.losses again.losses

it "makes a damaged or outdated index again"
printf 'x' | dd of=tars/.lockstep-index-train bs=1 seek=100 conv=notrunc 2>dd.log
touch records/train-00000-of-00002
train damaged --data tars
train touched --data records
expect_same folders.losses damaged.losses
expect_same folders.losses touched.losses

it "keeps the index in the cache when the folder cannot be written"
cp -r tars readonly
rm readonly/.lockstep*
if [ "$(id -u)" = 0 ] && ! command -v setpriv >/dev/null; then
    skip "root may write everywhere, and there is no setpriv"
else
    chmod -R a-w readonly && chmod 777 . && mkdir -m 777 cache
    drop=
    [ "$(id -u)" != 0 ] || drop="setpriv --reuid=65534 --clear-groups --bounding-set=-all"
    # $drop is a list of words.
    # shellcheck disable=SC2086
    XDG_CACHE_HOME=$PWD/cache HOME=/nonexistent $drop "$program" data readonly >out 2>err || miss "exit code $?"
    expect_no_file readonly/.lockstep-index-train
    [ -n "$(ls cache/lockstep/index 2>ls.log)" ] || miss "there is no index in the cache"
    chmod -R u+w readonly
fi

it "has the same losses with three workers"
train alone --data tars --replicas 3
train three --data tars --replicas 3 --workers 3
expect_same alone.losses three.losses
train three-records --data records --replicas 3 --workers 3
expect_same alone.losses three-records.losses

it "resumes in the middle of an epoch with the weights of the undisturbed run"
# shellcheck disable=SC2086
lockstep train $options --data records --run stopped --checkpoint-every 1 --keep 100
expect_code 0
rm -r stopped/checkpoints/step-0000000[5-9] stopped/checkpoints/best
lockstep train --resume --run stopped --quiet
expect_code 0
last=$(ls runs/folders/checkpoints | grep step | tail -n 1)
expect "$(losses stopped)" = "$(losses runs/folders)"
expect_file "stopped/checkpoints/$last/model.safetensors"

it "opens one tar file, and a folder whose shards carry the part in their name"
mkdir flat
for part in train val; do
    for i in 0 1 2; do
        cp "tars/$part/shard-00000$i.tar" "flat/trees-$part-$i.tar"
    done
done
train flat --data flat
expect_same folders.losses flat.losses
lockstep data tars/val/shard-000000.tar
expect_code 0

it "takes the folders, and not an archive or a text that was left beside them"
cp -r trees beside
cp tars/train/shard-000000.tar beside/train.tar
cp tars/train/shard-000000.tar beside/train/images.tar
train beside --data beside
expect_same folders.losses beside.losses
cp -r trees/train plain
cp tars/train/shard-000000.tar plain/
echo 'ash/10056 pictures of trees' >plain/list.txt
printf 'ash/1\nbirch/1\n' >plain/train.txt
lockstep data plain
expect_code 0
expect_out '^plain: folder, 3 classes'

it "opens more shards than a process may have files open by default"
mkdir -p many/train
for i in $(seq 80); do
    cp tars/val/shard-000000.tar "many/train/$i.tar"
done
(ulimit -S -n 48 && "$program" data many >out 2>err) || miss "exit code $?"
expect_out '^both +160 '

it "names the tar file that is cut off, and the place"
mkdir -p cut/train && head -c 3000 tars/train/shard-000001.tar >cut/train/a.tar
lockstep data cut
expect_code 3
expect_err 'cut/train/a.tar: at byte [0-9]+: '

it "names the record that is damaged, and the place"
cp -r records damaged-records && rm damaged-records/.lockstep*
printf 'x' | dd of=damaged-records/train-00001-of-00002 bs=1 seek=2000 conv=notrunc 2>dd.log
lockstep data damaged-records
expect_code 3
expect_err 'train-00001-of-00002: at byte [0-9]+: the checksum of the record is wrong'
head -c 5 records/train-00000-of-00002 >short.tfrecord
lockstep data short.tfrecord
expect_code 3
expect_err 'short.tfrecord: at byte 0: the file ends within the head of a record'

it "names a sample with two images, and one without a label"
"$python" - <<'END'
import io, tarfile
def make(path, names):
    with tarfile.open(path, "w") as t:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 3
            t.addfile(info, io.BytesIO(b"abc"))
make("two.tar", ["a/1.jpg", "a/1.png"])
make("none.tar", ["1.jpg", "1.json"])
make("empty.tar", ["1.json"])
END
lockstep data two.tar
expect_code 3
expect_err 'two.tar: at byte 1024: a/1.png: the sample has a second image'
lockstep data none.tar
expect_code 3
expect_err 'none.tar: at byte 0: 1 has no label: expected 1.cls beside it, or a folder of its class'
lockstep data empty.tar
expect_code 3
expect_err 'empty.tar: no sample with an image'

it "names a shard that becomes shorter during training"
cp -r tars shrinking
hold train --model mlp --input 3x20x20 --augment none --batch 6 --epochs 100000 --threads 1 --no-tune --log-every 1 \
    --data shrinking --run shrinking-run --no-evaluate
within 60 test -s shrinking-run/metrics.jsonl || miss "the run does not begin"
: >shrinking/train/shard-000002.tar
let_go
expect_code 3
expect_err 'shrinking/train/shard-000002.tar: .* at byte [0-9]+: cannot be read: the file became shorter'

it "refuses an empty shard, and warns of one without an end mark"
lockstep data shrinking
expect_code 3
expect_err 'shard-000002.tar: at byte 0: the file is empty'
mkdir -p unended/train
"$python" - <<'END'
data = open("tars/train/shard-000000.tar", "rb").read()
open("unended/train/a.tar", "wb").write(data[: len(data.rstrip(b"\0")) + 511 & -512])
END
lockstep data unended
expect_code 0
expect_err 'unended/train/a.tar: the end mark of a tar file is missing'

finish
