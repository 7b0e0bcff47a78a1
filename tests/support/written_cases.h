#pragma once
// What the programs that write test cases as C++ share: the list of the parts, and files that are only written where
// their text changes, so that few of them are compiled again.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/text.h"

namespace graphpipe::tests {

/// The file that gathers part_0() to part_<parts - 1>() as NAMESPACE::all_cases(), declared in `header` with its Case.
inline std::string case_list_text(const std::string& header, const std::string& name_space, size_t parts) {
  const std::string cases = text("std::span<const ", name_space, "::Case>");
  std::string declarations, items;
  for (size_t part = 0; part < parts; ++part) {
    declarations += text(cases, " part_", part, "();\n");
    items += text("part_", part, "(), ");
  }
  return text("#include \"", header, "\"\n\n", declarations, "\nstd::span<const ", cases, "> ", name_space,
              "::all_cases() {\n  static const ", cases, " parts[] = {", items, "};\n  return parts;\n}\n");
}

inline void write_if_changed(const std::filesystem::path& path, const std::string& content) {
  std::ifstream old(path, std::ios::binary);
  if (old && std::string(std::istreambuf_iterator<char>(old), {}) == content) return;
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace graphpipe::tests
