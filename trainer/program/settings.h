// The settings of a run, which must be alike on all ranks, and which a run keeps when it is
// resumed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>

namespace CLI {
class App;
}

namespace rw {

// Values by name: an option ("--batch"), or something else on which a run depends ("the data").
using Settings = std::map<std::string, std::string>;

// Returns the current values of all options of a command, so that a new option counts without being
// named anywhere. If a subcommand was called, its options are returned.
Settings settings_of(CLI::App& command);

// Returns the settings of a training run, with the learning rate that results from `--lr` and its
// options, and with the content_hash() of the parts of its data.
Settings run_settings(CLI::App& command, double rate, std::initializer_list<uint64_t> data);
// Returns "the data" alone, for programs that keep no snapshots.
Settings data_settings(std::initializer_list<uint64_t> data);

// Programs call it before training. Throws RankError, which names the first setting that differs on
// another rank, or says that the program's file differs; --device and --quiet may differ.
void check_ranks_alike(const Settings& settings);

// Compares the settings of a run that is resumed. Throws FileError, which names all settings with
// which `folder` was made differently, except for those that may change (docs/resuming.md), and the
// dtype if that was asked for. Notes name the changes that change bits.
void check_resumed(const std::string& folder, const Settings& then, const Settings& now,
                   bool change_dtype);

}  // namespace rw
