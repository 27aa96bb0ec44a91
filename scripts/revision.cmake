# cmake -DSOURCE=DIR -DHEADER=FILE -P revision.cmake: writes LS_REVISION, " (COMMIT)" with a + where files were changed since,
# or "" where the sources are not a git checkout of their own. The file is left alone when it says so already.
cmake_minimum_required(VERSION 3.22)
set(revision "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND commit)
    set(revision " (${commit})")
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define LS_REVISION \"@revision@\"\n" @ONLY)
