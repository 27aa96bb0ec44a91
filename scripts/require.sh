# shellcheck shell=sh
# Sourced by ./run and ./test. `require build` or `require build test` sees to it that what these stages need is there:
# with root or passwordless sudo it installs the Debian packages that are missing, otherwise it names them and stops.
# Nothing is installed, and no package manager is asked, when all is present.

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
test     header cmocka.h             libcmocka-dev
test     module venv,ensurepip       python3-venv
test     command g++                 g++
test     command pgrep               procps
test     command mpicc.openmpi       libopenmpi-dev
test     command mpirun.openmpi      openmpi-bin
test     command mpicc.mpich         libmpich-dev
test     command mpirun.mpich        mpich
test     header ucp/api/ucp.h        libucx-dev
build    header openssl/hmac.h       libssl-dev
test     command ip                  iproute2
test     command slurmctld           slurm-wlm
test     command munged              munge
test     library pmix                libpmix-dev
END
}

# Daemons lie where an ordinary account does not look.
has_command() {
    (PATH=$PATH:/usr/sbin:/sbin && command -v "$1" >/dev/null)
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

require() {
    packages=$(missing_packages "$@")
    [ -n "$packages" ] || return 0
    if ! has_command apt-get || ! as_root true 2>/dev/null; then
        echo "$0: packages are missing, and this account may not install them. Ask an administrator for:" >&2
        echo "    apt-get install $packages" >&2
        exit 1
    fi
    echo "Installing $packages"
    as_root apt-get -qq update
    # $packages is a list of words.
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $packages >/dev/null
}
