# shellcheck shell=sh
# Small image folders for tests. Sourced after harness.sh.
#
#   photo COLOUR SEED SIDE >FILE.ppm    a square of one of seven colours, with a pattern that SEED decides
#   classes FOLDER COUNT CLASS...       FOLDER/CLASS/1.ppm ... for each class; the class decides the colour

# LC_ALL=C: %c is a byte. None of them is 0, which awk cannot print.
photo() {
    printf 'P6\n%d %d\n255\n' "$3" "$3"
    awk -v colour="$1" -v seed="$2" -v side="$3" 'BEGIN {
        for (i = 0; i < side * side; i++) {
            noise = (i * 7919 + seed * 104729) % 61
            for (bit = 1; bit <= 4; bit *= 2)
                printf "%c", (int(colour / bit) % 2 ? 180 : 20) + noise
        }
    }'
}

# The colour of a class, from 1 to 7.
colour_of() {
    case $1 in
    ash*) echo 1 ;;
    birch*) echo 2 ;;
    cedar*) echo 3 ;;
    elm*) echo 4 ;;
    fir*) echo 5 ;;
    oak*) echo 6 ;;
    *) echo 7 ;;
    esac
}

classes() {
    folder=$1 count=$2
    shift 2
    for class in "$@"; do
        mkdir -p "$folder/$class"
        for shot in $(seq "$count"); do
            photo "$(colour_of "$class")" "$shot" 20 >"$folder/$class/$shot.ppm"
        done
    done
}
