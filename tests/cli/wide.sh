# shellcheck shell=sh
# Sourced after harness.sh.
#
#   wide_model N    prints a model with two large dense layers of about N thousand weights each, and dropout between them

wide_model() {
    cat <<END
input: 1x14x14
classes: 10
init: {conv: torch, dense: torch}
layers:
  - {name: c1, op: conv, out: 20, kernel: 3, stride: 2, pad: 1}
  - {name: n1, op: bn}
  - {name: r1, op: relu}
  - {name: f1, op: dense, out: $1}
  - {name: r2, op: relu}
  - {name: d1, op: dropout, p: 0.5}
  - {name: f2, op: dense, out: 1000}
  - {name: r3, op: relu}
  - {name: f3, op: dense, out: classes}
END
}
