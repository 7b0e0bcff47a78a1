#include "codegen/block_table.h"

namespace graphpipe::codegen {
namespace {

std::string block_name(size_t number) { return text("block", number); }
std::string block_header() { return text(kBlocksFolder, "/functions.h"); }

}  // namespace

std::string BlockTable::name_of(FunctionText function) {
  const auto [place, is_new] = number_of_.emplace(function.definition("block"), blocks_.size());
  if (is_new) blocks_.push_back(std::move(function));
  return text(kBlocksFolder, "::", block_name(place->second));
}

std::vector<SourceFile> BlockTable::files(const std::string& first_line) const {
  if (blocks_.empty()) return {};
  const std::string name_space = text("pipeline::", kBlocksFolder);
  std::vector<SourceFile> files;
  std::string declarations;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    declarations += blocks_[i].declaration(block_name(i));
    files.push_back(
        {text(kBlocksFolder, "/", block_name(i), ".cpp"),
         text(first_line, include_lines(blocks_[i].headers), "#include \"", block_header(), "\"\n\nnamespace ",
              name_space, " {\n\n", blocks_[i].definition(block_name(i)), "\n}  // namespace ", name_space, "\n")});
  }
  files.push_back({block_header(), text(first_line, "#pragma once\n#include \"runtime/program.h\"\n\nnamespace ",
                                        name_space, " {\n\n", declarations, "\n}  // namespace ", name_space, "\n")});
  return files;
}

}  // namespace graphpipe::codegen
