#!/bin/sh
# What is said where no GPU can be used. Where there is a card, see tests/gpu.
. tests/cli/harness.sh

lockstep doctor --json
if grep -q '"bus"' out; then
    it "needs no card"
    skip "there is one: ./test --gpu"
    finish
fi
# A driver without a usable card makes doctor warn.
fine='^(missing|warning) +cuda +'

# alone ARGUMENTS...: the program without its modules.
mkdir alone && cp "$program" alone/lockstep
alone() {
    env -u LOCKSTEP_MODULES alone/lockstep "$@" >out 2>err </dev/null
    code=$?
}

it "exports the hook of the log from every module"
for module in "$(dirname "$program")"/lockstep-*.so; do
    [ -e "$module" ] || continue
    nm -D --defined-only "$module" | grep -q ' ls_module_forward_log$' || miss "$module hides it"
done

it "calls a backend that was not built missing, which is no error"
alone doctor
expect_code 0
expect_out "${fine}not built: no CUDA toolkit with cuDNN 9 was found when Lockstep was compiled"

it "takes it for one where a GPU is asked for, and says what to do"
alone doctor --gpu
expect_code 1
expect_out '^error +cuda +not built: no CUDA toolkit'
expect_out '^ +Install the CUDA toolkit and cuDNN 9'
expect "$(cat err)" = ""

it "says so when training on it is asked for"
alone train --backend cuda --steps 1
expect_code 1
expect_error 'lockstep-cuda.so was not found.*--backend onednn'
expect_no_file runs

it "refuses NCCL on the CPU before anything is made"
lockstep train --backend onednn --collective nccl --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:32 \
    --steps 1 --batch 16 --run nccl
expect_code 2
expect_error '--collective nccl sums on GPUs: take --backend cuda, or leave it out'
expect_no_file nccl
lockstep train --backend onednn --collective nccl --workers 2 --model "$source_root/tests/cli/small.yaml" \
    --data synthetic:1x14x14:10:32 --steps 1 --batch 16 --run nccl
expect_code 2
expect_err 'take --backend cuda'

it "says so when decoding on it is asked for"
alone data mnist --decode gpu
expect_code 1
expect_error 'lockstep-cuda.so was not found.*leave --decode out'
alone train --decode hardware --steps 1
expect_code 1
expect_error 'lockstep-cuda.so was not found.*leave --decode out'
expect_no_file runs

it "trains on the CPU when nothing is asked for"
alone train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:32 --steps 1 --batch 16 --run cpu
expect_code 0
expect_out 'backend onednn'

it "says that a module cannot be loaded"
mkdir broken && echo "no library" >broken/lockstep-cuda.so
LOCKSTEP_MODULES=broken lockstep doctor --gpu
expect_code 1
expect_out '^error +cuda +built, but broken/lockstep-cuda.so: cannot be loaded'
expect "$(cat err)" = ""
LOCKSTEP_MODULES=broken lockstep train --backend cuda --steps 1
expect_code 1
expect_error 'broken/lockstep-cuda.so: cannot be loaded'

built=
[ ! -e "$(dirname "$program")/lockstep-cuda.so" ] || built=yes

it "finds no card, and says where to look"
if [ -z "$built" ]; then
    skip "built without CUDA"
else
    lockstep doctor
    expect_code 0
    expect_out "${fine}built \(cuDNN 9.*\), but no card can be used: "
    lockstep doctor --gpu
    expect_code 1
    expect_out '^error +cuda +built \(cuDNN 9.*\), but no card can be used: '
    expect_out '^ +See whether nvidia-smi'
    lockstep doctor --gpu --json
    expect_code 1
    expect "$(json errors <out)" = 1
    expect_out '"cards": *\[\]'
    expect_out '"ops": *\[\]'
fi

it "says so when training on it is asked for, once for all workers"
if [ -z "$built" ]; then
    skip "built without CUDA"
else
    lockstep train --backend cuda --steps 1
    expect_code 1
    expect_error '^lockstep: error: --backend cuda: no GPU can be used here .*--backend onednn'
    lockstep train --backend cuda --steps 1 --batch 16 --workers 2
    expect_code 1
    expect "$(grep -c 'no GPU can be used here' err)" = 1
    expect_no_file runs
fi

it "says so when decoding on it is asked for and there is none"
if [ -z "$built" ]; then
    skip "built without CUDA"
else
    for decoder in gpu hardware; do
        lockstep train --decode $decoder --backend onednn --steps 1
        expect_code 1
        expect_error "^lockstep: error: --decode $decoder: no GPU can be used here .*leave --decode out"
    done
    expect_no_file runs
fi

it "names what can decode"
lockstep data mnist --decode gpus
expect_code 2
expect_error "--decode.*'gpus' is not one of cpu, gpu, hardware"

for dtype in tf32 fp16; do
    it "refuses $dtype on the CPU"
    lockstep train --backend onednn --dtype $dtype --steps 1
    expect_code 2
    expect_error "--dtype $dtype: .*--backend cuda"
done

it "has --gpu for the doctor alone"
lockstep train --gpu
expect_code 2

it "does not pass the tests of the card without one"
(cd "$source_root" && LOCKSTEP_BUILD=$(dirname "$program") ./test --gpu) >out 2>err </dev/null
code=$?
expect_code 1
expect_err 'no card'

finish
