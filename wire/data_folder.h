#pragma once
// A folder of data: per input and label NAME.npy; or parts NAME.0.npy, NAME.1.npy, ... whose rows follow each other; or
// a folder NAME with .npy files, in the order of their names. Which characters of a name stay says data_file.h. Files
// are mapped, not read: data may be larger than the memory.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/mapped_file.h"
#include "support/result.h"
#include "wire/data_table.h"

namespace graphpipe::wire {

/// An input's array, or a part of it, as its file has it.
struct DataArray {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  std::span<const std::byte> elements;
  /// The file within the folder, for messages.
  std::string file;
};

class NpyFolder {
 public:
  /// A file that belongs to an input of the table is no part of another one: x.0.npy is that of an input "x.0".
  NpyFolder(std::string folder, const DataTable& table);
  /// The parts of an entry, one or more, in order. They live as long as this. Errors: kBadData where there is no such
  /// file, a part is missing or two forms stand beside each other; kUnreadableFile, kMalformedFile.
  Result<std::vector<DataArray>> open(const DataEntry& entry);

 private:
  Result<std::vector<std::string>> files_of(const DataEntry& entry) const;
  Result<std::vector<std::string>> numbered_parts(const std::string& stem) const;

  std::string folder_;
  std::set<std::string> stems_;
  std::map<std::string, MappedFile> files_;
};

}  // namespace graphpipe::wire
