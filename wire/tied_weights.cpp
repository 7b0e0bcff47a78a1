#include "wire/tied_weights.h"

#include <algorithm>

namespace graphpipe::wire {

Result<std::optional<std::string>> find_tied_weight(const std::vector<std::string>& names,
                                                    const TensorBytes& bytes_of) {
  std::optional<std::string> found;
  std::span<const std::byte> first;
  for (const std::string& name : names) {
    const auto bytes = bytes_of(name);
    if (!bytes) continue;
    if (found && !std::ranges::equal(first, *bytes))
      return Diagnostic{
          .code = Code::kMalformedFile,
          .message = text("the weights file has other numbers for ", quoted(ModelText(*found)), " than for ",
                          quoted(ModelText(name)), ", which are one parameter of this model"),
          .hint = "export the model without the tie, or name a file of a model that has it"};
    if (found) continue;
    found = name;
    first = *bytes;
  }
  return found;
}

}  // namespace graphpipe::wire
