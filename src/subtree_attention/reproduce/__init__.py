"""The paper's comparisons, trained again: STAGNN beside other models on the same splits."""
