#!/bin/sh
# Exported models in ONNX Runtime: the same logits as predict, from images that Pillow prepares by the file's metadata.
. tests/cli/harness.sh

check=$source_root/tests/cli/onnx_check.py
model_file=$source_root/tests/cli/every-op.yaml
"${PYTHON:-false}" -c 'import onnx, onnxruntime, PIL, safetensors' 2>/dev/null && readers=yes || readers=
no_readers="no onnx, onnxruntime and Pillow from PyPI"

# make NAME MODEL CxHxW CLASSES [GAIN]: a file of weights, and images of about that size. Sums in a residual net grow, so that
# its weights have to be smaller for logits of a size that probabilities can show.
make() {
    lockstep train --model "$2" --data "synthetic:$3:$4:64" --batch 2 --steps 1 --no-evaluate --quiet --run "$1"
    expect_code 0
    cp "$1"/checkpoints/step-*/model.safetensors "$1.safetensors"
    [ -z "$readers" ] || "$PYTHON" "$check" shake "$1.safetensors" "${5:-2}" || miss "the weights cannot be changed"
    [ -z "$readers" ] || "$PYTHON" "$check" images "$1-images" "$3" || miss "no images"
}

# same NAME CLASSES [options of export]
same() {
    weights=$1 classes=$2
    shift 2
    lockstep export "$weights.safetensors" --onnx "$weights.onnx" "$@"
    expect_code 0
    lockstep predict "$weights.safetensors" "$weights-images" --top "$classes" --format json -o "$weights.json" --quiet
    expect_code 0
    "$PYTHON" "$check" same "$weights.onnx" "$weights.json" >difference 2>why || {
        miss "ONNX Runtime does not agree: $(cat difference)"
        sed 's/^/#   /' why | tail -n 3
    }
}

it "gives ONNX Runtime's logits with every op of model files"
make ops "$model_file" 3x31x29 7
if [ "$readers" ]; then same ops 7; else skip "$no_readers"; fi

it "folds batch normalisation where a convolution is before it"
lockstep export ops.safetensors --onnx folded.onnx --fold-bn
expect_code 0
expect_out '^Folded 2 of 3 '
if [ "$readers" ]; then same ops 7 --fold-bn; else skip "$no_readers"; fi

it "gives probabilities if asked"
lockstep export ops.safetensors --onnx soft.onnx --with-softmax
expect_code 0
expect_out 'Output probabilities: float32 batch x 7'
if [ "$readers" ]; then same ops 7 --with-softmax --fold-bn; else skip "$no_readers"; fi

make lenet lenet 1x28x28 10
for model in mlp lenet convnet resnet18 mobilenet_v2 mobilenet_v3_small; do
    it "gives ONNX Runtime's logits for $model"
    if [ -z "$readers" ]; then
        skip "$no_readers"
        continue
    fi
    case $model in
    lenet) ;;
    mlp) make $model $model 1x28x28 10 ;;
    resnet*) make $model $model 3x32x32 10 0.3 ;;
    *) make $model $model 3x32x32 10 ;;
    esac
    same $model 10
    same $model 10 --fold-bn
done

it "writes the preprocessing that is given, and predict uses the same"
if [ "$readers" ]; then
    lockstep export lenet.safetensors --onnx other.onnx --eval-resize 40 --eval-crop 28x28 --json
    expect_code 0
    expect "$(json opset <out)" = 17
    expect_out 'shorter side to 40, centre 28x28'
    lockstep predict lenet.safetensors lenet-images --eval-resize 40 --eval-crop 28x28 --top 10 -o other.json --quiet
    "$PYTHON" "$check" same other.onnx other.json >difference 2>&1 || miss "the preprocessing differs: $(tail -n 1 difference)"
else
    skip "$no_readers"
fi

it "exports the newest checkpoint of a run, a checkpoint, and --run"
lockstep export ops --onnx "with space ünd.onnx" --quiet
expect_code 0
expect "$(wc -c <out)" = 0
lockstep export ops/checkpoints/step-00000001 --onnx two.onnx --quiet
expect_code 0
lockstep export --run ops --onnx three.onnx --quiet
cmp -s "with space ünd.onnx" two.onnx || miss "the checkpoint gives another file"
cmp -s two.onnx three.onnx || miss "--run gives another file"

it "asks for what is missing"
lockstep export ops
expect_code 2
expect_error 'lockstep export ops --onnx FILE.onnx'
lockstep export --onnx a.onnx
expect_code 2
expect_error 'which model'
lockstep export nowhere --onnx a.onnx
expect_code 3
expect_error 'nowhere'
lockstep export ops lenet --onnx a.onnx
expect_code 2
expect_error 'one too many'

it "refuses weights of another architecture in one line, and leaves the old file"
echo old >kept.onnx
cp "$(ls lenet/checkpoints/step-*/model.safetensors)" other.safetensors
lockstep export other.safetensors --model mlp --onnx kept.onnx --quiet
expect_code 3
expect_error 'another model'
expect "$(cat kept.onnx)" = old

it "says where it cannot write"
lockstep export ops --onnx no/such/folder/a.onnx
expect_code 1
expect_error 'no/such/folder/a.onnx'
mkdir folder.onnx
lockstep export ops --onnx folder.onnx
expect_code 1
expect_error 'folder.onnx'

it "refuses more than an ONNX file can hold"
cat >huge.yaml <<'END'
input: 1x10x10
classes: 2
layers:
  - {name: a, op: dense, out: 6000000}
  - {name: b, op: dense, out: classes}
END
header='{"a.weight":{"dtype":"F32","shape":[6000000,100],"data_offsets":[0,2400000000]},"a.bias":{"dtype":"F32","shape":[6000000],"data_offsets":[2400000000,2424000000]},"b.weight":{"dtype":"F32","shape":[2,6000000],"data_offsets":[2424000000,2472000000]},"b.bias":{"dtype":"F32","shape":[2],"data_offsets":[2472000000,2472000008]}}'
size=$(printf %s "$header" | wc -c)
{
    # shellcheck disable=SC2059 # the format is made of octal numbers
    printf "\\$(printf %o $((size % 256)))\\$(printf %o $((size / 256)))\\0\\0\\0\\0\\0\\0"
    printf %s "$header"
} >huge.safetensors
truncate -s $((8 + size + 2472000008)) huge.safetensors # a hole: no disk
lockstep export huge.safetensors --model huge.yaml --input 1x10x10 --classes 2 --onnx huge.onnx
expect_code 1
expect_error '2\.5 GB.*less than 2\.1 GB'
expect "$(ls huge.onnx* 2>/dev/null)" = ''
rm huge.safetensors

it "leaves no temporary file behind"
expect "$(ls ./*tmp* 2>/dev/null)" = ''

finish
