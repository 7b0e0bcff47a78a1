#include "frontend/told_parameters.h"

#include <utility>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"

namespace graphpipe::frontend {

std::set<std::string> told_parameters(const GraphBody& body, const ExportSignature& signature) {
  std::set<std::string> told;
  for (const OnnxNode& node : body.nodes)
    if (const std::optional<ExportedCall> call = parse_exported_call(node.exported_from))
      for (const std::string& value : call->values)
        if (std::string name = signature.tensor_of(value); !name.empty()) told.insert(std::move(name));
  for (const auto& [tensor, note] : body.folded_from)
    for (std::string& name : parse_names(note)) told.insert(std::move(name));
  return told;
}

}  // namespace graphpipe::frontend
