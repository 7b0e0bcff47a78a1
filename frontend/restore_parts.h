#pragma once
// Parts of a parameter that an exporter's optimiser has cut out beforehand: of `x + self.positions[:, :n]` PyTorch's
// default export has the slice, and not the parameter.
//
// They train as the parameter's elements do if each of these stands in one place alone. The elements say so: those that
// were drawn or trained are equal nowhere else. The rest of the parameter is not in the file, so that they train under a
// name of their own.

#include <string_view>

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// How the name of such a part ends, behind that of its value.
inline constexpr std::string_view kPartSuffix = "_part";

/// Changes the body, and adds to what restore_parameters() has done. Does nothing where a part is read as a value of
/// another parameter, or something else is computed from the parameter as well.
void restore_parts(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                   const ElementsOf& elements_of, Restoration& restored);

}  // namespace graphpipe::frontend
