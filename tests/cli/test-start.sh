#!/bin/sh
# The second start on the same data: whatever changed in between is noticed, and nothing needs to be written.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

classes trees 4 ash birch elm
options="--loader --input 3x16x16 --batch 4 --steps 1 --repeat 1 --warmup-steps 0 --quiet"

# The program finds so many samples in the data.
expect_count() {
    lockstep data "$2" --json
    expect_code 0
    expect "$(sed -n 's/.*"count": *\([0-9]*\).*/\1/p' out | head -1)" = "$1"
}

it "notices images that were added, removed and renamed in a folder"
expect_count 12 trees
photo 3 9 16 >'trees/elm/neu é.ppm'
expect_count 13 trees
rm trees/ash/1.ppm trees/ash/2.ppm
expect_count 11 trees
mv trees/ash/3.ppm trees/birch/z.ppm
expect_count 11 trees
expect_out '"birch"'

it "keeps no index of a folder, so a folder that cannot be written is no different"
expect "$(find . -name '.lockstep-index*' | wc -l)" = 0

it "notices a tar file with other samples, and one with the old name, size and other contents"
mkdir -p tars/train
(cd trees && tar cf ../tars/train/a.tar ash birch elm)
expect_count 11 tars/train/a.tar
expect_count 11 tars/train/a.tar
cp tars/train/a.tar before.tar
mv trees/elm/1.ppm trees/elm/1.txt
(cd trees && tar cf ../tars/train/a.tar ash birch elm)
expect "$(wc -c <tars/train/a.tar)" = "$(wc -c <before.tar)"
expect_count 10 tars/train/a.tar

it "starts where neither the data nor the home can be written"
if [ "$(id -u)" = 0 ] && ! command -v setpriv >/dev/null; then
    skip "root may write everywhere, and there is no setpriv"
else
    rm -f tars/train/.lockstep* && chmod -R a+rX,a-w tars && chmod 755 .
    drop=
    [ "$(id -u)" != 0 ] || drop="setpriv --reuid=65534 --clear-groups --bounding-set=-all"
    for turn in first second; do
        # $drop and $options are lists of words.
        # shellcheck disable=SC2086
        env -u XDG_CACHE_HOME HOME=/nonexistent $drop "$program" bench $options --data tars/train/a.tar >out 2>err ||
            miss "exit code $? at the $turn start"
    done
    expect "$(find tars -name '.lockstep-index*' | wc -l)" = 0
    chmod -R u+w tars
fi

finish
