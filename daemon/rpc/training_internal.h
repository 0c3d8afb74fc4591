/* The handlers of Training by the file that has them; training.c puts them in a table. */
#pragma once

#include "rpc/pending.h"

typedef void Handler(Call *call, const ProtobufCMessage *message, void *server);

/* training_join.c */
Handler training_join, training_next_lease, training_leave;
/* training_context.c */
Handler training_forward, training_backward, training_step, training_discard;
/* training_gradients.c */
Handler training_gradients;
/* training_stream.c */
Handler training_train;
