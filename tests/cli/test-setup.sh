#!/bin/sh
# What is said where a library was missing at the build, is missing now, or came later.
. tests/cli/harness.sh
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN LOCKSTEP_MODULES

# A copy of the program without modules, in a folder that looks like a build folder.
mkdir built && cp "$program" built/lockstep && : >built/build.ninja
sudo=
[ "$(id -u)" = 0 ] || sudo='sudo '
if [ -e "$(cmake -LA -N "$(dirname "$program")" 2>/dev/null | sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p')/lib/lockstep" ]; then
    it "is not installed"
    skip "Lockstep is installed where this build would install it"
    finish
fi

# bare COMMAND...: with the variables of a launcher, see below.
bare() {
    env "$@" >out 2>err </dev/null
    code=$?
}

# remedy LIBRARY PACKAGES: one line with what to type.
remedy() {
    expect_code 1
    expect_error "^lockstep: error: this Lockstep was built without $1; type: ${sudo}apt-get install $2 && cmake --build $scratch/built "
    expect_no_file runs
}

it "names Open MPI's packages under its mpirun"
bare OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 built/lockstep train --steps 1
remedy "Open MPI" "libopenmpi-dev openmpi-bin"

it "names them under srun --mpi=pmix"
bare SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 PMIX_RANK=0 built/lockstep train --steps 1
remedy "Open MPI" "libopenmpi-dev openmpi-bin"

it "names MPICH's packages under its mpiexec"
bare PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 built/lockstep train --steps 1
remedy MPICH "libmpich-dev mpich"

it "names OpenSSL's package for --master-ip, file:// and srun alone"
bare LOCKSTEP_TOKEN=of-this-test built/lockstep train --master-ip 127.0.0.1 --num-nodes 2 --rank 0 --steps 1
remedy OpenSSL libssl-dev
bare built/lockstep train --rendezvous "file://$scratch/meet" --num-nodes 2 --steps 1
remedy OpenSSL libssl-dev
bare SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NNODES=1 built/lockstep train --steps 1
remedy OpenSSL libssl-dev

it "names UCX's packages for --transport ucx"
bare LOCKSTEP_TOKEN=of-this-test built/lockstep train --transport ucx --master-ip 127.0.0.1 --num-nodes 2 --rank 0 --steps 1
remedy UCX "libucx-dev libssl-dev"

it "says to build again where the program is installed"
mkdir installed && cp "$program" installed/lockstep
bare OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 installed/lockstep train --steps 1
expect_code 1
expect_error "type: ${sudo}apt-get install libopenmpi-dev openmpi-bin, build Lockstep again and install it "

it "calls them missing in doctor, with what to type"
bare built/lockstep doctor
expect_code 0
for topic in mpi-openmpi mpi-mpich tcp ucx; do
    expect_out "^missing +$topic +not here: this Lockstep was built without "
done
expect_out "^ +To have it: ${sudo}apt-get install libucx-dev libssl-dev && cmake --build $scratch/built"

it "trains without any of them on one machine"
bare built/lockstep train --workers 2 --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:32 --steps 1 \
    --batch 16 --run alone
expect_code 0

it "names the packages where a module's library is gone"
if ! command -v cc >/dev/null; then
    skip "needs a C compiler"
else
    mkdir gone
    echo 'void gone(void) {}' | cc -shared -fPIC -x c - -o gone/libgone.so
    echo 'void gone(void); void here(void) { gone(); }' |
        cc -shared -fPIC -x c - -o gone/lockstep-mpi-openmpi.so -Lgone -lgone
    rm gone/libgone.so
    bare LOCKSTEP_MODULES=gone OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 built/lockstep train --steps 1
    expect_code 1
    expect_error "libgone.so.*if Open MPI is missing, type: ${sudo}apt-get install libopenmpi-dev openmpi-bin"
    bare LOCKSTEP_MODULES=gone built/lockstep doctor
    expect_out '^warning +mpi-openmpi +not usable: .*libgone.so'
fi

it "names the processor and the libraries when training starts"
lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:32 --steps 1 --batch 16 --run named \
    --backend onednn
expect_code 0
expect_out '^  hardware   [^;]+; oneDNN [0-9]+\.[0-9]+'
expect "$(grep -c '^  hardware ' named/log.txt)" = 1

it "names the MPI library, too"
if [ ! -e "$(dirname "$program")/lockstep-mpi-openmpi.so" ]; then
    skip "built without Open MPI"
else
    set -- --oversubscribe -np 2 "$program" train --model "$source_root/tests/cli/small.yaml" --steps 1 --batch 16 \
        --data synthetic:1x14x14:10:32 --backend onednn --run mpi
    [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
    timeout -k 5 120 mpirun.openmpi "$@" >out 2>err </dev/null
    code=$?
    expect_code 0
    expect_out '^  hardware .*; oneDNN [^,]+, Open MPI v?[0-9]'
fi

it "finds a library that was installed after the first configuration"
if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null || ! pkg-config --exists ucx libcrypto; then
    skip "needs cmake, ninja and libucx-dev"
else
    mkdir without
    for folder in $(pkg-config --variable pc_path pkg-config | tr : ' '); do
        cp "$folder"/*.pc without/ 2>/dev/null
    done
    rm without/ucx.pc
    PKG_CONFIG_LIBDIR=$scratch/without cmake -S "$source_root" -B tree -G Ninja -DLS_CUDA=OFF >out 2>err
    code=$?
    expect_code 0
    expect_out 'Module lockstep-ucx: no, libucx-dev or libssl-dev was not found'
    [ ! -e /var/lib/dpkg/status ] || grep -q '^build build.ninja:.* /var/lib/dpkg/status' tree/build.ninja ||
        miss "a change of Debian's packages starts no configuration"
    cmake -S "$source_root" -B tree >out 2>err
    expect_out 'Module lockstep-ucx: yes'
fi

# --- ./run and scripts/require.sh, with stand-ins for apt-get, sudo and cmake ---------------------------------------------

# A clone whose build is already there, and a path with the tools that ./run uses and, before them, the stand-ins. The two
# have folders of their own: a stand-in that was written through a link would replace the tool itself.
mkdir -p clone/scripts clone/build/release clone/src/config/lists tools stand-ins
cp "$source_root/run" clone/ && cp "$source_root/scripts/require.sh" clone/scripts/
cp "$source_root/src/config/lists/commands.def" clone/src/config/lists/
for tool in dirname mkdir tail cat tr sed grep chmod; do
    ln -s "$(command -v $tool)" tools/$tool
done
stand_in() {
    printf '#!/bin/sh\n%s\n' "$2" >stand-ins/"$1"
    chmod +x stand-ins/"$1"
}
run() {
    PATH=$scratch/stand-ins:$scratch/tools clone/run "$@" >out 2>err </dev/null
    code=$?
}

it "./run names what it lacks where it may not install"
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
stand_in apt-get 'exit 1'
run
expect_code 1
expect_err 'this account may not install them'
expect_err 'apt-get install gcc .*libdnnl-dev.*libssl-dev'

it "./run builds without MPI where it may not install that, and says what to type"
stand_in ninja 'exit 0'
stand_in pkg-config 'exit 0'
stand_in cmake 'printf "#!/bin/sh\necho trained\n" >build/release/lockstep; chmod +x build/release/lockstep'
stand_in cc 'if grep -q ucp/api; then exit 1; fi'
run
expect_code 0
expect_out '^trained$'
expect_error 'some of mpirun, srun --mpi=pmix, --transport ucx, WebP, GIF and LMDB files and data fetch will not work until you type: sudo apt-get install libopenmpi-dev openmpi-bin libucx-dev && '

it "./run installs both where it may"
rm -f clone/build/release/lockstep
stand_in sudo 'shift; "$@"'
stand_in env 'shift; "$@"'
stand_in apt-get "echo \"\$@\" >>$scratch/asked"
stand_in true 'exit 0'
run
expect_code 0
expect "$(tail -n 1 asked)" = "-qq install --no-install-recommends libopenmpi-dev openmpi-bin libucx-dev"
expect "$(cat err)" = ""

it "./run asks no package manager once it was built"
rm asked
: >clone/build/release/build.ninja
run
expect_code 0
expect_no_file asked

it "./run trains with its arguments, or runs the command that its first one names"
stand_in cmake 'printf "#!/bin/sh\necho \"\$*\"\n" >build/release/lockstep; chmod +x build/release/lockstep'
run --model 'a[b'
expect "$(cat out)" = "train --model a[b"
run doctor --gpu
expect "$(cat out)" = "doctor --gpu"
run train --steps 1
expect "$(cat out)" = "train --steps 1"
run mine.yaml
expect "$(cat out)" = "train mine.yaml"

finish
