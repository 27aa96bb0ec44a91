#!/bin/sh
# doctor --gpu on a machine with a card.
. tests/cli/harness.sh

it "knows the card without being asked for it"
lockstep doctor
expect_code 0
expect_out '^(ok|warning) +cuda +built: cuDNN 9'
expect_out '^ok +card +0.*compute capability [0-9]'

it "finds every op right on the card"
lockstep doctor --gpu
cp out said
expect_code 0
for op in conv dense bn lrn act maxpool avgpool adaptive_avgpool add concat dropout flatten softmax_xent l2_loss sgd lars adamw lamb ema; do
    for dtype in f32 tf32 bf16 fp16; do
        expect_out "^ok +$op +$dtype: relative error [0-9.e+-]+ at most, [0-9]+ case"
    done
done
sed -n '/^error/,/^ *[A-Z]/s/^/# /p' said

it "gives it as JSON"
lockstep doctor --gpu --json
expect_code 0
expect "$(json errors <out)" = 0
expect_out '"capability"'
expect "$(grep -c '"tolerance"' out)" -ge 64

finish
