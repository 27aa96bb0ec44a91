/* The built-in models. Each is defined in the file of its family. */
#ifndef LS_MODEL_FAMILIES_H
#define LS_MODEL_FAMILIES_H

#include "model/model.h"

#define X(name) extern const struct ls_model ls_model_##name;
#include "config/lists/models.def"

#endif
