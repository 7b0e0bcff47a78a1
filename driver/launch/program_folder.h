#pragma once
// The folder of a program that is made on the way: the user's, which stays, or one of our own, which goes.

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace graphpipe::driver {

class ProgramFolder {
 public:
  /// `kept`: the user's, or empty. `name`: begins the name of ours, below the system's folder for temporary files.
  ProgramFolder(const std::string& kept, const std::string& name) : path_(kept), temporary_(kept.empty()) {
    if (!temporary_) return;
    std::string pattern = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ProgramFolder(const ProgramFolder&) = delete;
  ProgramFolder& operator=(const ProgramFolder&) = delete;
  ~ProgramFolder() {
    std::error_code ignored;
    if (temporary_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  /// Empty where none could be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool temporary_;
};

}  // namespace graphpipe::driver
