/* Access to libyaml for model files: one document, line numbers, and values as text. */
#ifndef LS_MODEL_YAML_DOC_H
#define LS_MODEL_YAML_DOC_H

#include "graph/build.h"
#include <yaml.h>

#define LS_YAML_LAYERS 4096

/* A parsed file. Errors begin with "path:line: " of the node that was last passed to ls_yaml_at. */
struct ls_yaml {
    const char *path; /* borrowed */
    yaml_document_t document;
};

/* Parses text into *y. After success the caller releases it with ls_yaml_release. */
enum ls_status ls_yaml_load(struct ls_yaml *y, const char *path, const char *text, size_t length);
void ls_yaml_release(struct ls_yaml *y);

yaml_node_t *ls_yaml_node(struct ls_yaml *y, int id);
int ls_yaml_line(const yaml_node_t *node);
/* Sets the node whose line the following errors give. */
void ls_yaml_at(const struct ls_yaml *y, const yaml_node_t *node);
/* Reads a single value as text. what names it in the error ("'kernel'"). */
enum ls_status ls_yaml_text(struct ls_yaml *y, const yaml_node_t *node, const char *what, const char **text);
/* Reads a whole number from least to 1,000,000,000. */
enum ls_status ls_yaml_integer(struct ls_yaml *y, const yaml_node_t *node, const char *what, int64_t least,
                               int64_t *value);
/* Writes "; did you mean 'x'?" or ";" into text. The list of known words follows it in the message. */
const char *ls_yaml_hint(const char *word, const char *const *known, int n, char text[96]);
/* Writes "a, b and c" into text. */
const char *ls_yaml_list(const char *const *words, int n, char text[512]);

/* The initialisation of the weights of a kind of layer: a scheme, or a distribution. */
struct ls_init_rule {
    bool by_scheme;
    enum ls_scheme scheme;
    struct ls_init weight; /* used without a scheme; the bias then starts at 0 */
};
/* Whether the rule is for some filters of convolutions only, and none for all layers of a kind. */
static inline bool ls_init_of_filters(const struct ls_init_rule *rule)
{
    return !rule->by_scheme && (rule->weight.kind == LS_INIT_IDENTITY || rule->weight.kind == LS_INIT_WHITEN);
}
extern const char *const ls_scheme_names[]; /* by enum ls_scheme; NULL: the scheme has no name */
/* Reads "torch", "kaiming_out", "kaiming_in", "kaiming_uniform", "xavier", "normal 0.01", "uniform 0.1" or "constant 0". */
enum ls_status ls_yaml_init_rule(struct ls_yaml *y, const yaml_node_t *node, const char *what,
                                 struct ls_init_rule *rule);

/* The attributes of one layer, read from its mapping. */
struct ls_yaml_layer {
    const yaml_node_t *node;
    const char *name;
    const struct ls_op *op;
    const yaml_node_t *from; /* NULL: the previous layer */
    struct ls_attr attr;
    bool same_padding, has_init, has_bias_init;
    struct ls_init_rule init, bias_init;
};
enum ls_status ls_yaml_read_layer(struct ls_yaml *y, const yaml_node_t *node, int64_t classes,
                                  struct ls_yaml_layer *layer);

#endif
