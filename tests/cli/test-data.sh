#!/bin/sh
. tests/cli/harness.sh

mnist=$source_root/data/mnist
images=$source_root/tests/cli/images

it "tells what is in a data set"
lockstep data mnist
expect_code 0
expect_out '60,?000'
expect_out '10,?000'

it "tells it as JSON"
lockstep data mnist --json
expect_code 0
expect "$(json count <out)" = 60000
expect "$(json classes <out)" = 10
expect "$(json format <out)" = mnist

it "recognises IDX files, packed and unpacked"
mkdir idx
cp "$mnist"/*.gz idx/
lockstep data idx --json
expect_code 0
gunzip idx/*.gz
lockstep data idx --json
expect_code 0
expect "$(json count <out)" = 60000

it "refuses a truncated IDX file"
truncate -s 1000000 idx/train-images-idx3-ubyte
lockstep data idx
expect_code 3
expect_error 'idx/train-images-idx3-ubyte.*1,?000,?000'

it "refuses IDX images and labels of different counts"
gunzip -c "$mnist/train-images-idx3-ubyte.gz" >idx/train-images-idx3-ubyte
gunzip -c "$mnist/t10k-labels-idx1-ubyte.gz" >idx/train-labels-idx1-ubyte
lockstep data idx
expect_code 3
expect_error 'idx/train-.*60,?000|idx/train-.*10,?000'

it "refuses a packed IDX file that was cut off"
rm idx/*
cp "$mnist"/*.gz idx/
truncate -s 5000000 idx/train-images-idx3-ubyte.gz
lockstep data idx
expect_code 3
expect_error 'train-images-idx3-ubyte.gz'

# CIFAR-10's files hold 10,000 records of 3073 bytes each; label byte 0 everywhere.
make_cifar() {
    mkdir -p cifar
    for file in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
        truncate -s 0 cifar/$file.bin
        truncate -s 30730000 cifar/$file.bin
    done
}

it "recognises CIFAR-10"
make_cifar
lockstep data cifar --json
expect_code 0
expect "$(json count <out)" = 50000
expect "$(json format <out)" = cifar10

it "refuses a CIFAR-10 file that is too long"
truncate -s +7 cifar/data_batch_3.bin
lockstep data cifar
expect_code 3
expect_error 'data_batch_3.bin.*30,?730,?007'

it "refuses a CIFAR-10 label that is none, and says where"
make_cifar
printf '\013' | dd of=cifar/data_batch_2.bin bs=1 seek=$((3073 * 5)) conv=notrunc 2>/dev/null
lockstep data cifar
expect_code 3
expect_error 'data_batch_2.bin: label 11 at byte 15365'

it "recognises a folder of images"
for part in train val; do
    mkdir -p photos/$part/bars photos/$part/ring
    cp "$images/bars.jpg" photos/$part/bars/1.jpg
    cp "$images/bars.jpg" photos/$part/bars/2.JPEG
    cp "$images/ring.png" photos/$part/ring/1.png
done
lockstep data photos --json
expect_code 0
expect "$(json count <out)" = 3
expect "$(json classes <out)" = 2
expect "$(json format <out)" = folder

it "trains on it"
lockstep train --model lenet --data photos --input 3x28x28 --batch 2 --steps 2 --run photos-run
expect_code 0

it "lists broken images"
head -c 400 "$images/bars.jpg" >photos/train/bars/3.jpg
echo "not an image" >photos/train/ring/2.png
lockstep data photos
expect_code 3
cat out err >both
grep -q 'bars/3.jpg' both || miss "bars/3.jpg is not named"
grep -q 'ring/2.png' both || miss "ring/2.png is not named"

it "stops training at a broken image, naming it"
lockstep train --model lenet --data photos --input 3x28x28 --batch 5 --steps 2 --run broken-run
expect_code 3
expect_error 'photos/train/(bars/3.jpg|ring/2.png)'

it "goes on at an empty class, names it, and still lists broken images"
rm photos/train/ring/*
lockstep data photos
expect_code 3
expect_err 'warning: photos/train: 1 of the classes has no images: ring'
expect_err 'photos/train/bars/3.jpg'
expect_out '^ *1 +ring +0 +1$'
rm photos/train/bars/3.jpg
lockstep data photos --json
expect_code 0
expect "$(tr -d ' \n' <out | grep -o '"empty_classes":\[1\]' | wc -l)" = 1

it "trains with an empty class, which stays a class"
lockstep train --model lenet --data photos --input 3x28x28 --batch 2 --steps 1 --run empty-run
expect_code 0
expect_err 'photos/train: 1 of the classes has no images: ring'
expect_out '2 classes'

it "recognises Training and Testing, and says which folders it takes"
mkdir habits
cp -r photos/val habits/Training
cp -r photos/val habits/Testing
lockstep data habits
expect_code 0
expect_out '^train: habits/Training$'
expect_out '^test: habits/Testing$'
cp -r photos/val habits/valid
lockstep train --model lenet --data habits --input 3x28x28 --batch 2 --steps 1 --run habits-run
expect_code 0
expect_out 'training on habits/Training, evaluation on habits/valid'

it "goes down where there is but one way, and says so"
mkdir high
cp -r photos high/
lockstep train --model lenet --data high --input 3x28x28 --batch 2 --steps 1 --run high-run
expect_code 0
expect_err 'warning: high: nothing in it but a folder: high/photos is taken instead'
expect_out 'training on high/photos/train, evaluation on high/photos/val'

it "warns of a single class"
mkdir -p single
cp -r photos/val/bars single/
lockstep train --model lenet --data single --input 3x28x28 --batch 2 --steps 1 --no-evaluate --run single-run
expect_code 0
expect_error 'single: there are images of one class only, bars'

it "warns of folders with images beside the parts, which are left out"
mkdir beside
cp -r photos/val beside/train
cp -r photos/val beside/val
cp -r photos/val/bars beside/dog
mkdir beside/notes
lockstep data beside
expect_code 0
expect_error 'warning: beside: beside/train is taken for the training images; 1 other folder .* left out: dog$'

it "does not wait for a named pipe"
cp -r photos/val pipes
mkfifo pipes/ring/pipe.png
lockstep data pipes
expect_code 3
expect_err 'error: pipes/ring/pipe.png: a FIFO .*, not a regular file'

it "prints a class with a newline in its name as one row"
mkdir lines
cp -r photos/val/bars 'lines/two
lines'
cp -r photos/val/ring lines/
lockstep data lines
expect_code 0
expect_out '^ *1  two\\x0alines +[0-9]'

it "looks at a folder without parts once"
cp -r photos/val plain
echo "not an image" >plain/ring/2.png
lockstep data plain
expect_code 3
expect_out '^both +4 '
expect "$(grep -c 'plain/ring/2.png' err)" = 1

it "tells it as JSON where names are not UTF-8"
odd=$(printf 'odd\351')
cp -r photos/val "$odd"
lockstep data "$odd" --json
expect_code 0
expect "$(json count <out)" = 3

# Two grey images of values 0 and 255, one four times as large as the other.
it "counts each image the same in the mean, however large it is"
mkdir -p sizes/a sizes/b
{ printf 'P5 2 2 255\n'; head -c 4 /dev/zero; } >sizes/a/1.pgm
{ printf 'P5 4 4 255\n'; head -c 16 /dev/zero | tr '\0' '\377'; } >sizes/b/1.pgm
lockstep data sizes
expect_code 0
expect_out '^both .* 0.5000 0.5000 0.5000  0.5000 0.5000 0.5000 '
lockstep data sizes --json
expect "$(tr -d ' \n' <out | grep -oE '"mean":\[[^]]*' | head -n 1)" = '"mean":[0.5,0.5,0.5'
expect "$(tr -d ' \n' <out | grep -oE '"pixel_mean":\[[^]]*' | head -n 1 | cut -c 1-17)" = '"pixel_mean":[0.8'

it "says what a data set can be when it is none"
mkdir empty
lockstep data empty
expect_code 3
expect_error 'empty'
lockstep data nowhere
expect_code 3
expect_error 'nowhere'

it "is check, by name or without one; a data set of the name of a command is ./NAME"
lockstep data sizes
cp out plain-text
lockstep data check sizes
expect_code 0
expect_same out plain-text
cp -r sizes check
lockstep data check
expect_code 0
expect_out '^mnist: '
expect_err "warning: .*'check' is read as a command.*\./check"
for word in ./check "$PWD/check"; do
    lockstep data "$word"
    expect_code 0
    expect_out "^$word: folder"
done
lockstep data check check
expect_code 0
expect_out '^check: folder'
lockstep data check sizes more
expect_code 2
expect_error "more"

it "has help for each of its commands"
lockstep data --help
for command in $(sed -n 's/^X(\([a-z]*\),.*/\1/p' "$source_root/src/config/lists/data_commands.def"); do
    expect_out "^  $command "
    "$program" help data "$command" >first
    "$program" data "$command" --help >second
    expect_same first second
    grep -q "^usage: lockstep data $command " first || miss "no usage of $command"
done
lockstep help data nothing
expect_code 2
expect_error "nothing"

# The same images in class folders and together, in the same order.
it "evaluates on a flat folder with a label file as on class folders, on any number of workers"
. "$source_root/tests/cli/photos.sh"
classes flat/train 6 ash "birch tree" cedar
cp -r flat folders
classes folders/val 3 ash "birch tree" cedar
mkdir flat/val
for class in ash "birch tree" cedar; do
    for i in 1 2 3; do
        cp "folders/val/$class/$i.ppm" "flat/val/$class $i.ppm"
        printf '%s\t%s\n' "$class $i.ppm" "$class"
    done
done | sort -r >flat/val_labels.txt
for kind in folders flat; do
    lockstep train --model mlp --data $kind --input 3x8x8 --batch 6 --epochs 2 --run run-$kind
    expect_code 0
    grep -E '^(evaluation|Final|Best|epoch)' out | sed 's/, [0-9.]* s at.*//; s/ in [0-9.]* s.*//; s/, in run-.*//' >$kind.said
done
expect "$(grep -c . folders.said)" -ge 3
expect_same flat.said folders.said
lockstep train --model mlp --data flat --input 3x8x8 --batch 6 --epochs 2 --run run-two --workers 2 --replicas 2
expect_code 0
lockstep eval run-flat --eval-data flat --workers 2
expect_code 0
lockstep data flat
expect_code 0
expect_out '^test: flat/val$'
expect_out '^ *1 +birch tree +6 +3$'
awk 'BEGIN { for (i = 0; i < 9; i++) print int(i / 3) + 1 }' >flat/val_labels.txt # in the order of names
lockstep data flat
expect_code 0
expect_err 'val_labels.txt: the labels are numbers from 1: 1 is the class ash'
expect_out '^ *1 +birch tree +6 +3$'
echo extra >>flat/val_labels.txt
lockstep data flat
expect_code 3
expect_err 'flat/val_labels.txt: 10 labels, one a line, but flat/val has 9 images'

finish
