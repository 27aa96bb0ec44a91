#!/bin/sh
# Ten steps of each family of models on the card and on the CPU.
. tests/cli/harness.sh
. "$source_root/tests/gpu/gpu.sh"

# model  input  classes  what bf16 may differ by: deep nets of batch normalisations over few values make much of rounding
families() {
    cat <<'END'
mlp           1x28x28  10  2e-2
lenet         1x28x28  10  2e-2
convnet       3x32x32  10  2e-2
vgg11-cifar   3x32x32  10  2e-2
alexnet       3x64x64  20  2e-2
alexnet-cntk  3x64x64  20  2e-2
vgg11         3x32x32  10  2e-2
vgg11_bn      3x32x32  10  2e-2
resnet18      3x64x64  20  2e-2
resnet50      3x64x64  20  6e-2
mobilenet_v2  3x64x64  20  6e-2
resnext50_32x4d  3x64x64  20  6e-2
densenet121  3x64x64  20  6e-2
squeezenet1_1  3x64x64  20  2e-2
mobilenet_v3_small  3x64x64  20  6e-2
efficientnet_b0  3x64x64  20  6e-2
END
}

# steps MODEL INPUT CLASSES RUN OPTIONS...
steps() {
    model=$1 input=$2 classes=$3 run=$4
    shift 4
    lockstep train --model "$model" --data "synthetic:$input:$classes:320" --batch 32 --steps 10 --lr 0.00001 --schedule constant \
        --augment none --no-evaluate --checkpoint-every 1000000 --keep 1 --run "$run" "$@"
    expect_code 0
    rm -rf "$run/checkpoints" # some are large
}

# allowed X A B: X, or where rounding alone does more, three times what two runs on the CPU, with other numbers of threads,
# are apart.
allowed() {
    apart "$2" "$3" | awk -v most="$1" '{ print (3 * $2 > most ? 3 * $2 : most) }'
}

families >list
while read -r model input classes half <&3; do
    it "trains $model in f32 as the CPU does"
    steps "$model" "$input" "$classes" "$model-cpu" --backend onednn
    steps "$model" "$input" "$classes" "$model-alike" --backend onednn --threads 3
    steps "$model" "$input" "$classes" "$model-f32" --backend "$backend" --dtype f32
    expect_near "$model-cpu" "$model-f32" "$(allowed 1e-4 "$model-cpu" "$model-alike")"

    it "trains $model in bf16 nearly as in f32"
    steps "$model" "$input" "$classes" "$model-bf16" --backend "$backend" --dtype bf16
    expect_near "$model-cpu" "$model-bf16" "$(allowed "$half" "$model-cpu" "$model-alike")"
done 3<list

# A frozen first layer lets kernels compute convolution, activation and pooling together (CONVPOOL-2, CONVACT-1).
fast=$source_root/recipes/cifar10-fast/model.yaml
for freeze in none ^whiten; do
    [ $freeze = none ] && freezes= || freezes="--freeze $freeze"
    it "trains the recipe for small images in bf16 nearly as in f32; frozen: $freeze"
    # $freezes is two words or none.
    # shellcheck disable=SC2086
    steps "$fast" 3x32x32 10 "fast-cpu-$freeze" --backend onednn $freezes
    # shellcheck disable=SC2086
    steps "$fast" 3x32x32 10 "fast-bf16-$freeze" --backend "$backend" --dtype bf16 $freezes
    expect_near "fast-cpu-$freeze" "fast-bf16-$freeze" 2e-2
done

finish
