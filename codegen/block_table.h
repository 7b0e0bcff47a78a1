#pragma once
// Functions that several places of a program call with different tensors: the layers that a model repeats. Each
// function text is compiled only once, in a separate library, whichever stages call it.

#include <map>
#include <string>
#include <vector>

#include "codegen/function_writer.h"
#include "codegen/source_file.h"

namespace graphpipe::codegen {

inline constexpr std::string_view kBlocksFolder = "blocks";

class BlockTable {
 public:
  /// The qualified name of the function with this text, which uses the names of a BlockNaming.
  std::string name_of(FunctionText function);
  /// One file per function, and the header that declares them; none if there are no functions.
  std::vector<SourceFile> files(const std::string& first_line) const;

 private:
  std::vector<FunctionText> blocks_;
  std::map<std::string, size_t> number_of_;  // by text
};

}  // namespace graphpipe::codegen
