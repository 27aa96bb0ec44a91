#!/bin/sh
# No step allocates, and none waits for the card but for the step before it: the calls of CUDA's runtime and driver, counted
# over some steps and over twice as many. What a step makes is the difference.
. tests/cli/harness.sh
. "$source_root/tests/gpu/gpu.sh"
steps=20
calls=$(dirname "$program")/tests/libcalls.so

if [ ! -e "$calls" ]; then
    it "neither allocates nor waits in a step"
    skip "CUPTI was not found when Lockstep was built (tests/gpu/calls.c)"
    finish
fi

# counted FILE ARGUMENTS...: run the program, its calls into FILE
counted() {
    file=$1
    shift
    rm -f "$file"
    CUDA_INJECTION64_PATH=$calls CALLS_FILE=$PWD/$file lockstep "$@"
    expect_code 0
    expect_file "$file"
}

# per_step FEW MANY: "KIND NAME CALLS", of one step, for each function that is called more often in more steps
per_step() {
    awk -v steps="$steps" '
        { sub(/(_ptsz)?_v[0-9]+$/, "", $2); sub(/_ptsz$/, "", $2); key = $1 " " $2 }
        FILENAME == ARGV[1] { few[key] += $3; next }
        { many[key] += $3 }
        END { for (key in many) if (many[key] > few[key]) print key, (many[key] - few[key]) / steps }' "$1" "$2" | sort
}

# Memory, and whatever else is made rather than used.
made='(Malloc|MemAlloc|Free|HostAlloc|MemHostAlloc|Register|MemPool|MemCreate|MemRelease|MemMap|MemUnmap|MemAddress|Create|Destroy|Instantiate|BeginCapture|EndCapture|ModuleLoad|LibraryLoad)'

judge_calls() {
    per_step "$1" "$2" >grown
    echo "# calls a step: $(grep -v ^inside grown | awk '{ printf "%s%s %g", (NR > 1 ? ", " : ""), $2, $3 }')"
    grep -Eq ' (cudaGraphLaunch|cuGraphLaunch) ' grown || miss "no graph is launched: $(cat grown)"
    ! grep -E "$made" grown >bad || miss "steps make: $(cat bad)"
    awk '$2 ~ /Synchronize$/ && !($2 ~ /EventSynchronize$/ && $3 <= 2) || $2 ~ /Mem(cpy|set)/ && $2 !~ /Async/' grown >bad
    [ ! -s bad ] || miss "steps wait: $(cat bad)"
}

# of_bench NAME OPTIONS...
of_bench() {
    it "neither allocates nor waits in a step of bench $1"
    shift
    for n in $steps $((2 * steps)); do
        counted "calls-$n" bench --backend "$backend" --warmup-steps 4 --repeat 1 --steps "$n" "$@"
    done
    judge_calls calls-$steps calls-$((2 * steps))
}

# of_train NAME OPTIONS...
of_train() {
    it "neither allocates nor waits in a step of train $1"
    shift
    for n in $steps $((2 * steps)); do
        counted "calls-$n" train --backend "$backend" --no-evaluate --checkpoint-every 1000000 --schedule constant --steps "$n" \
            --run "run-$number-$n" "$@"
    done
    judge_calls calls-$steps calls-$((2 * steps))
}

of_bench "resnet18 bf16" --model resnet18 --input 3x64x64 --classes 20 --batch 32 --dtype bf16
of_bench "resnet18 fp16" --model resnet18 --input 3x64x64 --classes 20 --batch 32 --dtype fp16
of_bench "mobilenet_v2 f32" --model mobilenet_v2 --input 3x64x64 --classes 20 --batch 32 --dtype f32
of_bench "lenet in two passes" --model lenet --batch 64 --accumulate 2
of_train "with the data on the card" --model lenet --data mnist
of_train "with pixels from the host" --model lenet --data mnist --augment resize:32,center

finish
