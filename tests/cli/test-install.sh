#!/bin/sh
# What `cmake --install` puts where, and that it works from there.
. tests/cli/harness.sh
build=$(dirname "$program")
unset LOCKSTEP_MODULES

it "installs program, manual page, completion, documents, recipes and examples"
cmake --install "$build" --prefix "$scratch/usr" >out 2>err
code=$?
expect_code 0
doc=usr/share/doc/lockstep
for file in usr/bin/lockstep usr/include/lockstep.h usr/include/lockstep-infer.h usr/share/man/man1/lockstep.1 \
    usr/share/bash-completion/completions/lockstep $doc/README.md $doc/CHANGELOG.md $doc/LICENSE $doc/docs/design.md \
    $doc/docs/library.md $doc/docs/results.md $doc/recipes/slurm/train.sbatch \
    $doc/recipes/vgg11-cifar10/part1-single.yaml $doc/recipes/caffe-sweep/sweep.yaml \
    $doc/examples/mlp/serial.c $doc/examples/mlp/distributed.c $doc/examples/classify/classify.c; do
    expect_file "$file"
done
libdir=$(dirname "$(find usr -name liblockstep.so)")
expect_file "$libdir/pkgconfig/lockstep.pc"
expect_file "$libdir/liblockstep.a"
expect_file "$libdir/pkgconfig/lockstep-infer.pc"
expect_file "$libdir/liblockstep-infer.a"
for module in "$build"/lockstep-*.so; do
    [ ! -e "$module" ] || expect_file "$libdir/lockstep/$(basename "$module")"
done

it "installs every document of the source"
for folder in docs recipes examples; do
    diff -r "$source_root/$folder" "$doc/$folder" >out || miss "$folder is not what the source has"
done

it "has no link in its documents that leads nowhere"
for file in "$doc"/*.md "$doc"/docs/*.md "$doc"/recipes/*/README.md; do
    grep -oE '\]\([^)#]+' "$file" | sed 's/](//' | grep -v '^http' >links
    while read -r link; do
        [ -e "$(dirname "$file")/$link" ] || miss "$file: $link"
    done <links
done

it "trains with the installed program, alone in its folder"
program=$scratch/usr/bin/lockstep
lockstep train --model mlp --steps 2 --no-evaluate --run run
expect_code 0
lockstep train "$doc/recipes/vgg11-cifar10/part1-single.yaml" --data synthetic:3x32x32:10:64 --batch 8 --steps 1 --no-evaluate --run recipe
expect_code 0

# shellcheck disable=SC2016
# The commands of the chapter "Build" of docs/library.md, one after the other: with liblockstep.so, and without.
it "compiles the installed example as docs/library.md says"
sed -n '/^## Build/,/^## Start/p' "$doc/docs/library.md" | sed -n '/^```sh/,/^```/p' | grep -v '^```' >commands
expect "$(grep -c '^cc ' commands)" = 2
PKG_CONFIG_PATH=$scratch/$libdir/pkgconfig LD_LIBRARY_PATH=$scratch/$libdir
export PKG_CONFIG_PATH LD_LIBRARY_PATH
if [ "$(nm -D "$libdir/liblockstep.so" | grep -c '__[at]san_')" -gt 0 ]; then
    skip "the library was built with a sanitizer"
else
    cc -O2 "$doc/examples/mlp/serial.c" -o serial -lm
    ./serial >serial.txt
    for line in 1 2; do
        awk -v line=$line '/^cc / { n++ } n == line' commands >one.sh
        (cd "$doc/examples/mlp" && sh "$scratch/one.sh") >out 2>err || miss "command $line fails"
        "$doc/examples/mlp/distributed" >alone.txt
        expect_same alone.txt serial.txt
    done
fi
unset LD_LIBRARY_PATH

it "completes in a bash that finds the installed completion"
# shellcheck disable=SC2016
bash -c '. usr/share/bash-completion/completions/lockstep; COMP_WORDS=(lockstep train --sync ov); COMP_CWORD=3
    _lockstep; echo "${COMPREPLY[@]}"' >out 2>err
expect_out '^overlap$'

finish
