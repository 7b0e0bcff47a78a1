#pragma once
// A file that a program writes for its user. Whoever reads the path finds the old file or the whole new one: the bytes
// go to a temporary file beside it, reach the disk and take the name at the end.
//
// What stands at the path stays what it is: a pipe, a terminal or a device like /dev/null is written to, a symbolic
// link is followed and the file that it leads to replaced. A folder, a disk, a socket, a link that leads nowhere and a
// file that is read-only are refused. Names of a process's own open files, such as /dev/stdout, are these files.

#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe {

class OutputFile {
 public:
  /// Errors here and below: kEnvironment. Opening a pipe waits for its reader.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes what was written, unless commit() has given it its name.
  ~OutputFile();

  Status write(std::string_view bytes);
  /// The bytes, and the name that they go by, are on the disk when this returns.
  Status commit();

 private:
  OutputFile(std::string path, std::string target, std::string temporary, int descriptor)
      : path_(std::move(path)), target_(std::move(target)), temporary_(std::move(temporary)), descriptor_(descriptor) {}
  Diagnostic problem(std::string_view what) const;

  /// As the user wrote it; where it leads to; empty where it is written in place.
  std::string path_, target_, temporary_;
  int descriptor_ = -1;
};

/// Finds out before a long computation what would refuse its file after it. Leaves an old file as it is, and opens no
/// pipe. An empty path is none.
Status check_output_path(const std::string& path);

/// Whether both paths lead to one file, or would. Paths that cannot be looked at are compared as they are.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace graphpipe
