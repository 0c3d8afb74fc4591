/* The method table of dps.v1.Training. */
#include "rpc/training_internal.h"

#include "dps.pb-c.h"

#define METHOD(name, message, client, server, handler)                                             \
    {                                                                                              \
        "/dps.v1.Training/" name, &dps__v1__##message##__descriptor, client, server, handler       \
    }

static const Method methods[] = {
    METHOD("Join", join_request, false, false, training_join),
    METHOD("NextLease", session_request, false, false, training_next_lease),
    METHOD("Forward", forward_request, false, false, training_forward),
    METHOD("Backward", backward_request, false, false, training_backward),
    METHOD("Gradients", context_request, false, true, training_gradients),
    METHOD("Step", step_request, false, false, training_step),
    METHOD("Discard", context_request, false, false, training_discard),
    METHOD("Train", train_request, true, true, training_train),
    METHOD("Leave", session_request, false, false, training_leave),
};

MethodTable training_methods(Services *services)
{
    return (MethodTable){methods, sizeof methods / sizeof *methods, services};
}
