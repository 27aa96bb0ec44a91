#!/bin/sh
# A run keeps what it was started with: the network of a model file, and where things are.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

mkdir project elsewhere
classes project/trees/train 3 ash elm yew
classes project/trees/val 2 ash elm yew
cat >project/net.yaml <<'YAML'
input: 3x20x20
classes: 3
layers:
  - {name: conv1, op: conv, out: 4, kernel: 3}
  - {name: relu1, op: relu}
  - {name: pool, op: maxpool, kernel: 2, stride: 2}
  - {name: fc, op: dense, out: classes}
YAML
cp project/net.yaml net-as-it-was.yaml
# The same parameters, another network: nothing but the kept text tells them apart.
edit() {
    sed 's/maxpool/avgpool/' net-as-it-was.yaml >project/net.yaml
}
in_folder() {
    cd "$scratch/$1" || exit 1
    shift
    "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    cd "$scratch" || exit 1
}
train() {
    in_folder project train --model net.yaml --data trees --augment none --batch 9 --lr 0.001 --schedule constant --threads 1 "$@"
}
loss() {
    in_folder "$@" --json
    expect_code 0
    json loss <out
}
weights() {
    printf '%s/checkpoints/step-%08d/model.safetensors' "$1" "$2"
}

it "keeps the model's file in the run directory"
train --steps 4 --run runs/a
expect_code 0
expect_same project/runs/a/model.yaml net-as-it-was.yaml
train --steps 8 --run runs/straight
expect_code 0

it "evaluates a run from another folder"
before=$(loss project eval runs/a)
expect "$(loss elsewhere eval ../project/runs/a)" = "$before"
expect "$(loss elsewhere eval "$scratch/project/runs/a/checkpoints/step-00000004")" = "$before"

it "uses the copy when the file is edited, and says so"
edit
expect "$(loss project eval runs/a)" = "$before"
expect_err 'warning: .*/project/net.yaml has changed since .*copy'
in_folder elsewhere predict --run ../project/runs/a ../project/trees/val/ash/1.ppm
expect_code 0
expect_err 'net.yaml has changed'

it "resumes the network that it was started with"
train --steps 8 --run runs/a --resume
expect_code 0
expect_err 'warning: .*/project/net.yaml has changed since'
expect_same "project/$(weights runs/a 8)" "project/$(weights runs/straight 8)"
expect_same project/runs/a/model.yaml net-as-it-was.yaml

it "runs a configuration again with its copy, from another folder"
in_folder elsewhere train ../project/runs/a/config.yaml --run again
expect_code 0
expect_err 'net.yaml has changed'
expect_same "elsewhere/$(weights again 8)" "project/$(weights runs/straight 8)"
expect_same elsewhere/again/model.yaml net-as-it-was.yaml

it "knows the run of a configuration that was copied, linked, or lies in a checkpoint"
cp project/runs/a/config.yaml elsewhere/copy.yaml
ln -s ../project/runs/a/config.yaml elsewhere/link.yaml
for file in copy.yaml link.yaml ../project/runs/a/checkpoints/step-00000008/config.yaml; do
    rm -rf elsewhere/again-2
    in_folder elsewhere train $file --run again-2
    expect_code 0
    expect_same elsewhere/again-2/model.yaml net-as-it-was.yaml
    expect_same "elsewhere/$(weights again-2 8)" "project/$(weights runs/straight 8)"
done

it "takes the model that an edited copy of a configuration names"
cp project/net.yaml elsewhere/mine.yaml
sed "s|^model: [^ ]*|model: $scratch/elsewhere/mine.yaml|" project/runs/a/config.yaml >elsewhere/edited.yaml
in_folder elsewhere train edited.yaml --run from-edited
expect_code 0
expect_same elsewhere/from-edited/model.yaml project/net.yaml

it "takes another model with the configuration when told"
in_folder elsewhere train ../project/runs/a/config.yaml --model ../project/net.yaml --run edited
expect_code 0
expect_same elsewhere/edited/model.yaml project/net.yaml
expect_different "elsewhere/$(weights edited 8)" "project/$(weights runs/straight 8)"

it "needs the file no more"
rm project/net.yaml
final=$(loss project eval runs/straight)
in_folder elsewhere train --resume ../project/runs/a --steps 12
expect_code 0

it "finds everything when run and data move together"
mv project moved
expect "$(loss elsewhere eval ../moved/runs/straight)" = "$final"
in_folder elsewhere train --run ../moved/runs/straight --resume --steps 10
expect_code 0
mv moved project

it "finds the data when the run alone moves"
mv project/runs/a elsewhere/b
in_folder project eval ../elsewhere/b
expect_code 0

it "evaluates a checkpoint folder, and a file, that lie alone"
cp -r project/runs/straight/checkpoints/step-00000008 elsewhere/alone
cp "project/$(weights runs/straight 8)" elsewhere/model.safetensors
expect "$(loss elsewhere eval alone --data ../project/trees)" = "$final"
expect "$(loss elsewhere eval --init model.safetensors --data ../project/trees)" = "$final"

it "starts another run from a checkpoint, with its configuration and model"
in_folder project train --steps 12 --run runs/longer --resume runs/straight
expect_code 2
expect_error '--run runs/longer --resume runs/straight: these are two runs'
in_folder elsewhere train --resume alone --run branch --steps 9
expect_code 0
in_folder elsewhere train --resume ../project/runs/straight/checkpoints/step-00000008 --run branch-2 --steps 9
expect_code 0
expect_same elsewhere/branch/model.yaml net-as-it-was.yaml
expect_same "elsewhere/$(weights branch 9)" "elsewhere/$(weights branch-2 9)"
in_folder elsewhere train --resume alone --steps 9
expect_code 2
expect_error '--resume alone: this checkpoint is not in a run directory; give --run DIR'
expect_no_file config.yaml

it "obeys another --model for an evaluation, and says that it is another"
edit
in_folder project eval runs/straight --model net.yaml --json
expect_code 0
expect "$(json loss <out)" != "$final"
expect_err 'warning: --model .*net.yaml is not the network that was trained'

it "does not go on with a copy that was edited"
cp project/net.yaml project/runs/straight/model.yaml
in_folder project train --run runs/straight --resume --steps 20
expect_code 3
expect_err 'straight/model.yaml: not the network that .* was trained with'

it "does not go on from a checkpoint with another network"
in_folder project train --resume ../elsewhere/alone --run fresh --model net.yaml --data trees --augment none --batch 9 \
    --lr 0.001 --schedule constant --threads 1 --steps 20
expect_code 3
expect_err 'project/net.yaml: not the network that .*alone was trained with'

it "evaluates on the data that is given, and says what it finds, whatever the run was told"
classes few 3 elm
in_folder project train --model mlp --data trees --eval-data trees/val --input 3x20x20 --augment none --batch 9 --steps 2 --quiet \
    --run runs/quiet
expect_code 0
in_folder project eval runs/quiet --data ../few
expect_code 0
expect_out '(^|[^0-9])3 samples|[0-9]%'
in_folder project eval runs/quiet --data ../few --json
expect "$(json samples <out)" = 3

it "trains below a folder whose name is not UTF-8"
strange=$(printf 'caf\351')
mkdir "$strange"
cp -r project/trees "$strange"
cp net-as-it-was.yaml "$strange/net.yaml"
in_folder "$strange" train --model net.yaml --data trees --batch 9 --steps 2 --threads 1 --run run
expect_code 0
in_folder "$strange" eval run
expect_code 0

it "says that data is gone, and where it was"
mv project/trees project/forest
in_folder elsewhere eval again
expect_code 3
expect_error "$scratch/project/trees: no such folder"
mv project/forest project/trees

it "names a rank whose model file is another one"
cp net-as-it-was.yaml one.yaml
mkdir -p other
cp project/net.yaml other/one.yaml
pids=''
for rank in 0 1; do
    file=one.yaml
    [ $rank = 0 ] || file=other/one.yaml
    "$program" train --model $file --data project/trees --batch 6 --steps 2 --threads 1 --rank $rank --num-nodes 2 \
        --rendezvous "file://$scratch/meet" --run ranks >out.$rank 2>err.$rank </dev/null &
    pids="$pids $!"
done
for pid in $pids; do
    wait "$pid"
    expect $? = 2
done
cp err.0 err
expect_err 'rank 1 .*model: .*one.yaml checksum'

finish
