// The translation of each rule; translate.h puts them together.
#pragma once

#include "canzona/conformance/option_reader.h"
#include "canzona/conformance/translate.h"

namespace canzona {

// weight_decay and decay_form; decoupled means what the learning rate of the
// step means.
void translate_decay(OptionReader& from, RuleOptions& to);

void translate_muon(OptionReader& from, const Fixture& fixture,
                    const std::string& form, RuleOptions& to);
void translate_adamw(OptionReader& from, RuleOptions& to);
void translate_soap(OptionReader& from, const Fixture& fixture,
                    RuleOptions& to);
void translate_shampoo(OptionReader& from, const Fixture& fixture,
                       RuleOptions& to);
// How Shampoo's inverse roots are taken.
void translate_root(OptionReader& from, RuleOptions& to);

}  // namespace canzona
