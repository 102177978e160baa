// Options that several programs have. They mean the same in all of them, and one table explains
// them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace rw {

// Returns the table's help text of an option, and `more`, which only this program adds. ValueError
// if the table has no such option.
std::string shared_text(std::string_view name, const std::string& more = "");

// Refuses a path at which nothing can be written, before hours of work are lost at their end.
CLI::Option* must_be_writable(CLI::Option* option);

// Adds an option of the table.
template <class T>
CLI::Option* shared_option(CLI::App& app, const std::string& name, T& value,
                           const std::string& more = "") {
  CLI::Option* const option = app.add_option(name, value, shared_text(name, more));
  return name == "--save" ? must_be_writable(option) : option;
}
// Adds a flag of the table.
inline CLI::Option* shared_flag(CLI::App& app, const std::string& name, bool& value,
                                const std::string& more = "") {
  return app.add_flag(name, value, shared_text(name, more));
}

// Tells whether the command that runs has this option, as "--resume": messages speak of no others.
bool has_option(const std::string& name);
// Tells whether it was given to that command.
bool is_given(const std::string& name);
// Says which command runs, if one does.
void set_running_command(const CLI::App* command);

// Refuses 0 and less, where the variable's 0 stands for a default that depends on other options.
CLI::Option* must_be_positive(CLI::Option* option);

}  // namespace rw
