// What a run was told: the settings that ranks must have alike, and that a run keeps when it goes
// on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>

namespace CLI {
class App;
}

namespace rw {

// Values by what they are of: an option ("--batch"), or what else a run depends on ("the data").
using Settings = std::map<std::string, std::string>;

// What the options of a command are by now: all of them, so that a new one counts without being
// named anywhere. Of the subcommand, where one was called.
Settings settings_of(CLI::App& command);

// The settings of a training run, with the learning rate that results from `--lr` and its options,
// and with what content_hash() says of the parts of its data.
Settings run_settings(CLI::App& command, double rate, std::initializer_list<uint64_t> data);
// "the data" alone, for programs that keep no snapshots.
Settings data_settings(std::initializer_list<uint64_t> data);

// Before anything is trained. RankError naming the first that is another one on another rank, or
// another file of this program; --device and --quiet may be.
void check_ranks_alike(const Settings& settings);

// For a run that goes on: FileError naming all that `folder` was made with other values of, but for
// what may change (docs/resuming.md), the dtype where it is asked for. Of that, what changes bits
// is noted.
void check_resumed(const std::string& folder, const Settings& then, const Settings& now,
                   bool change_dtype);

}  // namespace rw
