#pragma once
// Parameters of one number, 1 or 0, by which an exporter's optimiser has found nothing to multiply or to add: of the
// call that read one nothing is left but its result's name, in the calls that take it.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "frontend/left_out_in_code.h"
#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// The first of these parameters which a call that has been left out may have read: a node, or an output, reads another
/// value in the place of a sum, difference, product or quotient that no node makes, and the parameter's module is one
/// through whose code a value passes on its way between the modules of the two, or one around the reader whose code
/// names the parameter where it calls that module. None where code has other reasons: a number that keeps a divisor
/// above zero, the 0 from which Python's sum() adds up, a buffer beside the parameter of which the file tells nothing
/// either, or more such parameters of the module than calls that are left out, so that it does not use them all.
/// Weights and biases of layers are none of these parameters.
std::optional<LeftOut> left_out_number(const GraphBody& body, const ExportSignature& signature,
                                       const std::set<std::string>& parameters,
                                       const std::function<bool(const std::string&)>& is_made);

}  // namespace graphpipe::frontend
