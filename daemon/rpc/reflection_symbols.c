#include "rpc/reflection_symbols.h"

#include <string.h>

/* What is left of the symbol after "name." ("" if it is the name itself); NULL: another name. */
static const char *after(const char *symbol, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(symbol, name, length) != 0)
        return NULL;
    if (symbol[length] == '\0')
        return symbol + length;
    return symbol[length] == '.' && symbol[length + 1] ? symbol + length + 1 : NULL;
}

static bool any_named(Dps__Reflection__Named *const *named, size_t n, const char *symbol)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(named[i]->name, symbol) == 0)
            return true;
    return false;
}

/* Values of an enum are siblings of the enum in protobuf's scoping. */
static bool in_enums(Dps__Reflection__Enum *const *enums, size_t n, const char *symbol)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(enums[i]->name, symbol) == 0 ||
            any_named(enums[i]->value, enums[i]->n_value, symbol))
            return true;
    return false;
}

/* As deep as the messages of our own files are nested. */
static bool in_messages(Dps__Reflection__Message *const *messages, size_t n, const char *symbol)
{
    for (size_t i = 0; i < n; i++) {
        const Dps__Reflection__Message *message = messages[i];
        const char *rest = after(symbol, message->name);
        if (!rest)
            continue;
        if (*rest == '\0' || any_named(message->field, message->n_field, rest) ||
            any_named(message->oneof_decl, message->n_oneof_decl, rest) ||
            in_enums(message->enum_type, message->n_enum_type, rest) ||
            in_messages(message->nested_type, message->n_nested_type, rest))
            return true;
    }
    return false;
}

static bool in_services(Dps__Reflection__Service *const *services, size_t n, const char *symbol)
{
    for (size_t i = 0; i < n; i++) {
        const char *rest = after(symbol, services[i]->name);
        if (rest && (*rest == '\0' || any_named(services[i]->method, services[i]->n_method, rest)))
            return true;
    }
    return false;
}

bool reflection_file_defines(const Dps__Reflection__File *file, const char *symbol)
{
    if (*file->package)
        symbol = after(symbol, file->package);
    if (!symbol || *symbol == '\0')
        return false;
    return in_messages(file->message_type, file->n_message_type, symbol) ||
           in_enums(file->enum_type, file->n_enum_type, symbol) ||
           in_services(file->service, file->n_service, symbol);
}
