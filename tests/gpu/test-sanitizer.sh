#!/bin/sh
# compute-sanitizer over what computes on the card: memory errors everywhere, races in the kernels' shared memory.
# Slow; run by ./test --gpu --sanitize. SANITIZE=TEXT: only the cases with that in their names.
. tests/cli/harness.sh
tests=$(dirname "$program")/tests
LOCKSTEP_MODULES=${LOCKSTEP_MODULES:-$(dirname "$program")} # the test programs lie elsewhere
export LOCKSTEP_MODULES
unset LOCKSTEP_TEST_BACKEND # the program takes it for an option

sanitizer=
for at in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    [ -n "$sanitizer" ] || sanitizer=$(command -v $at)
done
if [ -z "$sanitizer" ]; then
    it "finds nothing wrong on the card"
    skip "compute-sanitizer was not found"
    finish
fi

# under TOOL [OPTION...] COMMAND...: the command does what it should, without an error of the tool's in any process that the tool
# follows. Calls that fail are the command's own affair: libraries try what a card can do.
under() {
    tool=$1
    shift
    [ "$tool" != memcheck ] || set -- --report-api-errors no "$@"
    "$sanitizer" --tool "$tool" --error-exitcode 99 --print-limit 10 "$@" >out 2>err </dev/null
    code=$?
    grep -E '^========= ' out err | head -n 40 | sed 's/^/# /'
    if [ "$code" = 99 ]; then
        miss "$tool found errors"
        return
    fi
    expect_code 0
    grep -Eh '(ERROR|RACECHECK) SUMMARY: ' out err >summaries
    [ -s summaries ] || miss "$tool did not come to its end"
    ! grep -Evq 'SUMMARY: 0 (errors|hazards)' summaries || miss "$tool found errors in a process of $(wc -l <summaries)"
}

# A case of that name begins, if it is asked for.
wanted() {
    case $1 in
    *"${SANITIZE:-}"*) it "$1" ;;
    *) false ;;
    esac
}

for source in "$source_root"/tests/gpu/kernels_*.cu; do # other programs beside them only measure
    kernels=$(basename "$source" .cu)
    [ -x "$tests/$kernels" ] || continue
    for tool in memcheck racecheck; do
        if wanted "finds nothing with $tool in $kernels"; then
            under $tool "$tests/$kernels"
        fi
    done
done

for test in ops updates adamw lamb clip decoder; do
    if wanted "finds nothing with memcheck in test_$test on the card"; then
        LOCKSTEP_TEST_BACKEND=cuda under memcheck "$tests/test_$test"
    fi
done

for dtype in f32 bf16 fp16; do
    if wanted "finds nothing with memcheck in training on MNIST in $dtype"; then
        under memcheck "$program" train --backend cuda --model lenet --data mnist --steps 12 --epoch-size 640 \
            --dtype $dtype --run "mnist-$dtype"
    fi
done

if wanted "finds nothing with memcheck in training a small ResNet"; then
    under memcheck "$program" train --backend cuda --model resnet18 --data synthetic:3x64x64:10:96 --batch 16 --steps 6 \
        --dtype bf16 --run resnet
fi

finish
