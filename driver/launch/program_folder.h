#pragma once
// The folder of a program that is made on the way: the user's, which stays, or one of our own, which goes.

#include <optional>
#include <string>

#include "driver/launch/folder_lock.h"
#include "support/result.h"

namespace graphpipe::driver {

class ProgramFolder {
 public:
  /// `kept`: the user's, which is locked (folder_lock.h), or empty. `name`: begins the name of ours, below the system's
  /// folder for temporary files. Errors: kEnvironment where it cannot be written or another process holds it.
  static Result<ProgramFolder> make(const std::string& kept, const std::string& name);
  /// `folder`/`name`, which stays, or one of ours where the user may not write there.
  static Result<ProgramFolder> make_within(const std::string& folder, const std::string& name);
  ProgramFolder(ProgramFolder&& other) noexcept;
  ProgramFolder& operator=(ProgramFolder&&) = delete;
  ~ProgramFolder();

  const std::string& path() const { return path_; }

 private:
  ProgramFolder(std::string path, bool temporary) : path_(std::move(path)), temporary_(temporary) {}

  std::string path_;
  bool temporary_;
  std::optional<FolderLock> lock_;
};

}  // namespace graphpipe::driver
