// Folders whose files belong together, as those of a model: they are written as one thing, and a
// mixture of two is refused.
//
// Such a folder has a list of them, rewind-files.txt, with the size and the hash of each. A writer
// puts the new files into a folder of its own within it, and when they are safely stored it
// replaces the list by one that says where they are. From this rename on the new files count,
// before it the old ones do. Only then the files move to their places, and what belonged to the old
// ones only goes. If the writer is killed meanwhile, readers find the files where they are, and the
// next writer completes the move. Other programs know nothing of the list: they see both sets for
// the moment of the renames.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace rw {

// Where a file of a folder is: in it, or where a writer that was killed left it. The path of a file
// that belonged to the old ones only does not exist. FileError for a list that is damaged.
std::filesystem::path path_in(const std::filesystem::path& folder, const std::string& name);

// FileError unless the files that the list names are there, with their sizes and hashes. A folder
// without a list is not checked.
void check_folder(const std::filesystem::path& folder);

// Writes files of a folder, all or none. The folder is made if it is missing; if another writer is
// at work in it, the constructor waits for its end. Without commit(), and if it fails before the
// list is in place, nothing changes. Files that are replaced keep their modes. FileError.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path folder);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // The folder into which the files are to be written first, each safely stored.
  const std::filesystem::path& staged() const { return staged_; }
  // Puts them into their places, and removes other files whose names are those of an old set. It
  // may be called at most once.
  void commit(const std::function<bool(const std::string& name)>& is_of_old);

 private:
  // The descriptor of the folder has its lock, which the system lifts when the writer ends.
  struct Lock {
    int folder = -1;
    bool is_held = false;
    ~Lock();
  };

  std::filesystem::path folder_, staged_;
  Lock lock_;
};

}  // namespace rw
