/* Where a graph is one stage of a larger one (src/parallel): send marks a tensor that another stage reads, receive one that
 * another stage has made. They compute nothing. The engine moves the values when a pass comes to them. attr.layer is the
 * number of the tensor among all that travel, attr.size the other stage. */
#include "graph/ops/op.h"

const struct ls_op ls_op_send = {.name = "send", .min_in = 1, .max_in = 1};
const struct ls_op ls_op_receive = {.name = "receive"};
