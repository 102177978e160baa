// Prints the words in sound files, by a recogniser from a file.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace rw {

// Adds the options of the command to `app`, and returns what runs it.
std::function<void()> add_recognise(CLI::App& app);

}  // namespace rw
