/* Variables of the environment that launchers set. This is the only place that reads them. */
#ifndef LS_LAUNCH_VARIABLES_H
#define LS_LAUNCH_VARIABLES_H

#include "base/status.h"

/* Returns the value of a variable, or NULL if it is not set or empty. */
const char *ls_variable(const char *name);
/* Reads a number of 0 or more. Leaves *value unchanged if the variable is not set. */
enum ls_status ls_variable_number(const char *name, int *value);

#endif
