/* What reading a model file needs of libyaml: one document, its places, and values as text. */
#ifndef LS_MODEL_YAML_DOC_H
#define LS_MODEL_YAML_DOC_H

#include "graph/build.h"
#include <yaml.h>

#define LS_YAML_LAYERS 4096

/* A parsed file. Errors begin with "path:line: " of the node last pointed at (ls_yaml_at). */
struct ls_yaml {
    const char *path; /* borrowed */
    yaml_document_t document;
};

/* Parse text into *y; released by ls_yaml_release on success. */
enum ls_status ls_yaml_load(struct ls_yaml *y, const char *path, const char *text, size_t length);
void ls_yaml_release(struct ls_yaml *y);

yaml_node_t *ls_yaml_node(struct ls_yaml *y, int id);
int ls_yaml_line(const yaml_node_t *node);
/* Errors from here on are at this node. */
void ls_yaml_at(const struct ls_yaml *y, const yaml_node_t *node);
/* A single value as text; what names it in the error ("'kernel'"). */
enum ls_status ls_yaml_text(struct ls_yaml *y, const yaml_node_t *node, const char *what, const char **text);
/* A whole number from least to 1,000,000,000. */
enum ls_status ls_yaml_integer(struct ls_yaml *y, const yaml_node_t *node, const char *what, int64_t least,
                               int64_t *value);
/* "; did you mean 'x'?" or ";" into text, for a list of what there is to follow. */
const char *ls_yaml_hint(const char *word, const char *const *known, int n, char text[96]);
/* "a, b and c" into text. */
const char *ls_yaml_list(const char *const *words, int n, char text[512]);

/* How the weights of a kind of layer start: a scheme, or a rule of its own. */
struct ls_init_rule {
    bool by_scheme;
    enum ls_scheme scheme;
    struct ls_init weight; /* when not by scheme; the bias then starts at 0 */
};
extern const char *const ls_scheme_names[]; /* by enum ls_scheme; NULL: has no name of its own */
/* "torch", "kaiming_out", "xavier", "normal 0.01", "uniform 0.1" or "constant 0". */
enum ls_status ls_yaml_init_rule(struct ls_yaml *y, const yaml_node_t *node, const char *what,
                                 struct ls_init_rule *rule);

/* The attributes of one layer, as its mapping gives them. */
struct ls_yaml_layer {
    const yaml_node_t *node;
    const char *name;
    const struct ls_op *op;
    const yaml_node_t *from; /* NULL: the layer before */
    struct ls_attr attr;
    bool same_padding, has_init, has_bias_init;
    struct ls_init_rule init, bias_init;
};
enum ls_status ls_yaml_read_layer(struct ls_yaml *y, const yaml_node_t *node, int64_t classes,
                                  struct ls_yaml_layer *layer);

#endif
