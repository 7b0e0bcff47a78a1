#pragma once
// What a line of a module's code does with a member of the module.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::frontend {

/// "scale", "norm", "norm.weight": what the line may name as self.scale and self.norm.weight.
std::set<std::string> members_in(std::string_view line);

/// ".unsqueeze(-1).exp()" of "x * self.scale.unsqueeze(-1).exp() + y": what is called on a member that the line names
/// once. Nothing where the result is an argument of a function, or negated.
std::optional<std::string> calls_on_member(std::string_view line, std::string_view member);

/// "bias" and "scale" of "f(self.bias.view(-1), self.scale.view(-1), self.x)" and either of them: the members on which
/// the line calls the same as on this one, in its order, which is that of their evaluation. None where it names the
/// member more than once, or calls nothing on it.
std::vector<std::string> members_called_alike(std::string_view line, std::string_view member);

/// 1 of "x * (1.0 + self.weight.float())", and of "(self.weight + 1)": the number that is added to a member which the
/// line names once; nothing where none is.
std::optional<double> number_added(std::string_view line, std::string_view member);

/// Whether the line calls the function by this name alone: "sum(losses)", but neither "x.sum()" nor "torch.sum(x)".
bool calls_function(std::string_view line, std::string_view function);

}  // namespace graphpipe::frontend
