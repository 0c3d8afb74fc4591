/* What was asked of the daemon and not answered yet. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { QUESTIONS = 512 };

static Question questions[QUESTIONS];
static unsigned next;

Question *question_new(const char *what, void *owner)
{
    for (unsigned i = 0; i < QUESTIONS; i++) {
        Question *question = &questions[next++ % QUESTIONS];
        if (question->what)
            continue;
        *question = (Question){.what = what, .owner = owner, .asked_us = sim_now()};
        return question;
    }
    sim_fail("%d questions are open: %s…", QUESTIONS, questions[0].what);
}

void question_answered(Question *question)
{
    if (!question->what)
        sim_fail("a question is answered twice");
    question->what = NULL;
}

void questions_forget(void)
{
    memset(questions, 0, sizeof questions);
    next = 0;
}

void questions_forget_of(const void *owner)
{
    for (unsigned i = 0; i < QUESTIONS; i++)
        if (questions[i].owner == owner)
            questions[i].what = NULL;
}

unsigned questions_open(char *text, size_t size)
{
    unsigned n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < QUESTIONS; i++) {
        if (!questions[i].what)
            continue;
        n++;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s of %.6f s", n > 1 ? ", " : "",
                                     questions[i].what, (double)questions[i].asked_us / 1e6);
    }
    return n;
}
