// Tells people what Choices finds.
#pragma once

#include <string>
#include <vector>

#include "choices.h"

namespace rw {

// The chosen way as a table for people: what each change saves, and its time.
std::string choice_table(Choices& choices, const Choice& chosen);
// Tells people, in lines, what more is to have: the most tokens per sample with which the leanest
// way fits, and the time that ways that change updates would gain. Empty if there is nothing.
std::string more_text(Choices& choices, const Choice& chosen);
// The ways of Choices::front() as a table for people.
std::string front_table(const std::vector<Choice>& front);
// The error message where nothing fits: the least that does, what it consists of, and what helps.
std::string refusal_text(Choices& choices);

}  // namespace rw
