"""Google's APIs as their discovery documents describe them: routes, parameters, bodies, answers, errors, tokens."""
