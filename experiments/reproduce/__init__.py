"""The paper's tables, figures and theorem again, with every run on disk."""
