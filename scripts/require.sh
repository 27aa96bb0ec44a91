# shellcheck shell=sh
# Sourced by ./run and ./test.
#
#   require build test     these packages must be there: installs the missing ones, or names them and stops
#   offer cluster images   the build does without these: installs the missing ones, or names them and goes on
#
# Packages are Debian's. Installing needs root or sudo without a password. Nothing is installed, and no package manager is
# started, when all is present.

# stage  what is looked for          the packages that bring it
needs() {
    cat <<'END'
build    command cc                  gcc
build    header stdlib.h             libc6-dev
build    command cmake               cmake
build    command ninja               ninja-build
build    command pkg-config          pkg-config
build    header dnnl.h               libdnnl-dev
build    header jansson.h            libjansson-dev
build    header yaml.h               libyaml-dev
build    header png.h                libpng-dev
build    header stdio.h,jpeglib.h    libjpeg-dev
build    header zlib.h               zlib1g-dev
build    header hwloc.h              libhwloc-dev
build    header openssl/hmac.h       libssl-dev
cluster  mpi -                       libopenmpi-dev
cluster  mpi -                       openmpi-bin
cluster  header ucp/api/ucp.h        libucx-dev
images   header webp/decode.h        libwebp-dev
images   header stdio.h,gif_lib.h    libgif-dev
images   header lmdb.h               liblmdb-dev
images   header curl/curl.h          libcurl4-openssl-dev
test     header cmocka.h             libcmocka-dev
test     module venv,ensurepip       python3-venv
test     command g++                 g++
test     command pgrep               procps
test     command mpicc.openmpi       libopenmpi-dev
test     command mpirun.openmpi      openmpi-bin
test     command mpicc.mpich         libmpich-dev
test     command mpirun.mpich        mpich
test     header ucp/api/ucp.h        libucx-dev
test     command ip                  iproute2
test     command slurmctld           slurm-wlm
test     command munged              munge
test     library pmix                libpmix-dev
END
}

# Daemons are in folders that are not on an ordinary account's path.
has_command() {
    (PATH=$PATH:/usr/sbin:/sbin && command -v "$1" >/dev/null)
}

# Any MPI will do: a cluster has its own.
has_mpi() {
    has_command mpirun && { has_command mpicc || has_command mpicc.openmpi || has_command mpicc.mpich; }
}

has_library() {
    echo 'int main(void) { return 0; }' | cc -x c - -l"$1" -o /dev/null 2>/dev/null
}

has_header() {
    case $1 in
        cmocka.h) set -- stdarg.h,stddef.h,stdint.h,setjmp.h,cmocka.h ;;
    esac
    echo "$1" | tr , '\n' | sed 's/.*/#include <&>/' | cc -E -x c - >/dev/null 2>&1
}

has_module() {
    python3 -c "import $1" 2>/dev/null
}

# The packages of the named stages whose probe fails, on one line.
missing_packages() {
    needs | while read -r stage kind name package; do
        case " $* " in
            *" $stage "*) "has_$kind" "$name" || printf '%s ' "$package" ;;
        esac
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

may_install() {
    has_command apt-get && as_root true 2>/dev/null
}

install_packages() {
    echo "Installing $*"
    [ -n "${lists_are_new:-}" ] || as_root apt-get -qq update || return 1
    lists_are_new=yes
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$@" >/dev/null
}

require() {
    packages=$(missing_packages "$@")
    [ -n "$packages" ] || return 0
    if ! may_install; then
        echo "$0: packages are missing, and this account may not install them. Ask an administrator for:" >&2
        echo "    apt-get install $packages" >&2
        exit 1
    fi
    # $packages is a list of words.
    # shellcheck disable=SC2086
    if ! install_packages $packages; then
        echo "$0: packages could not be installed; this does it by hand: apt-get update && apt-get install $packages" >&2
        exit 1
    fi
}

offer() {
    packages=$(missing_packages "$@")
    [ -n "$packages" ] || return 0
    # shellcheck disable=SC2086
    if ! may_install || ! install_packages $packages; then
        echo "$0: some of mpirun, srun --mpi=pmix, --transport ucx, WebP, GIF and LMDB files and data fetch will not work until you type: sudo apt-get install ${packages% } && $0" >&2
    fi
}
