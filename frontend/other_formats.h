#pragma once
// What a file is that is no ONNX model, as far as its first bytes tell: people give what they have downloaded.

#include <string_view>

namespace graphpipe::frontend {

/// What the file begins like and what to do with it, as a hint of an error; empty where its beginning says nothing.
std::string_view hint_of_format(std::string_view file);

}  // namespace graphpipe::frontend
