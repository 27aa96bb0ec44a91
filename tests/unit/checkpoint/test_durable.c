/* Folders of a run are synced when they are made: a crash right after leaves them there. */
#include "train_tiny.h"

#include "checkpoint/rundir.h"

#include <limits.h>
#include <unistd.h>

enum { MOST = 256 };
static char synced[MOST][PATH_MAX];
static int n_synced;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = n_synced < MOST ? readlink(name, synced[n_synced], PATH_MAX - 1) : -1;
    if (length >= 0)
        synced[n_synced++][length] = 0;
    return __real_fsync(fd);
}

static bool was_synced(const char *path)
{
    for (int i = 0; i < n_synced; i++)
        if (strcmp(synced[i], path) == 0)
            return true;
    return false;
}

/* Each folder above one that is made, and none above those that were there. */
static void test_made_folders(void **state)
{
    (void)state;
    n_synced = 0;
    assert_int_equal(ls_dir_make(tiny_path("a/b//c/")), LS_OK);
    assert_true(was_synced(tiny_folder) && was_synced(tiny_path("a")) && was_synced(tiny_path("a/b")));
    assert_false(was_synced("/tmp"));
    n_synced = 0;
    assert_int_equal(ls_dir_make(tiny_path("a/b/c")), LS_OK);
    assert_int_equal(n_synced, 0);
}

/* A new folder is never one that exists, nor the target of a symbolic link. */
static void test_new_folder(void **state)
{
    (void)state;
    char target[PATH_MAX], folder[PATH_MAX];
    snprintf(target, sizeof target, "%s", tiny_path("target"));
    snprintf(folder, sizeof folder, "%s", tiny_path("new"));
    n_synced = 0;
    assert_int_equal(ls_dir_make_new(folder), LS_OK);
    assert_true(was_synced(tiny_folder));
    assert_int_equal(ls_dir_make_new(folder), LS_FAILED);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(ls_dir_make_new(target), LS_OK);
    assert_int_equal(symlink(target, folder), 0);
    assert_int_equal(ls_dir_make_new(folder), LS_FAILED);
}

/* runs/MODEL-DATA-001, which is made when no --run is given. */
static void test_numbered_run(void **state)
{
    (void)state;
    struct ls_options o = tiny_options("unused");
    char *run, here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(tiny_folder), 0);
    n_synced = 0;
    assert_int_equal(ls_rundir_make(&o, &run), LS_OK);
    assert_true(was_synced(tiny_folder) && was_synced(tiny_path("runs")));
    assert_int_equal(chdir(here), 0);
    ls_free(run);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_folders),
        cmocka_unit_test(test_new_folder),
        cmocka_unit_test(test_numbered_run),
    };
    return cmocka_run_group_tests_name("durable", tests, tiny_begin, tiny_end);
}
